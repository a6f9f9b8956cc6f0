"""``kernel.settings``: a view that may be assigned to, over settings that are immutable.

An assignment gives the kernel other settings; the old ones stay what they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from tilesmith.settings import Settings

_ASSIGN = "_assign"


class KernelSettings(Settings):
    """``kernel.settings``: reads like Settings; ``kernel.settings.check = True`` changes them."""

    @staticmethod
    def of(settings: Settings, assign: Callable[[Settings], None]) -> KernelSettings:
        """A view of settings; ``assign`` is told of those that are to replace them."""
        view = KernelSettings.__new__(KernelSettings)
        view.__dict__.update(vars(settings))
        view.__dict__[_ASSIGN] = assign
        return view

    @property
    def plain(self) -> Settings:
        """The present values alone."""
        values = {name: value for name, value in vars(self).items() if name != _ASSIGN}
        settings = Settings.__new__(Settings)
        settings.__dict__.update(values)
        return settings

    if not TYPE_CHECKING:  # a checker knows Settings as immutable, which all others are

        def __setattr__(self, name: str, value: object) -> None:
            assign = vars(self).get(_ASSIGN)
            if assign is None:
                raise FrozenInstanceError(f"cannot assign to field {name!r}")
            changed = replace(self.plain, **{name: value})
            self.__dict__.update(vars(changed))
            assign(changed)

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and self.to_dict() == other.to_dict()

    @override
    def __hash__(self) -> int:
        return hash(self.plain)

    @override
    def __repr__(self) -> str:
        return repr(self.plain)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return plain_settings, (self.plain,)


def plain_settings(settings: Settings) -> Settings:
    """The values of settings, of a view too."""
    return settings.plain if isinstance(settings, KernelSettings) else settings
