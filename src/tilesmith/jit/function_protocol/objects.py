"""A kernel as an object: called on an instance, pickled, with settings that may be assigned to.

``kernel.settings`` is a view over settings that are immutable: an assignment gives the kernel other
settings, and the old ones stay what they were.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Generic, overload

from typing_extensions import ParamSpec, Self, TypeVar, override

import tilesmith.exc as errors
from tilesmith.settings import Settings

P = ParamSpec("P", default=...)
Q = ParamSpec("Q")
R = TypeVar("R", default=Any)
"""The parameters and the result of a kernel's function."""


class KernelMethod(Generic[P, R]):
    """A kernel with its ``self`` given; everything else is the kernel's."""

    def __init__(self, kernel: Any, instance: object) -> None:
        self.__func__ = kernel
        self.__self__ = instance

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the kernel on the instance."""
        return self.__func__(self.__self__, *args, **kwargs)

    def bind(self, args: tuple[Any, ...] | list[Any], **options: Any) -> Any:
        """As ``Kernel.bind``, without ``self`` among the arguments."""
        return self.__func__.bind((self.__self__, *args), **options)

    def autotune(self, args: tuple[Any, ...] | list[Any], **options: Any) -> Any:
        """As ``Kernel.autotune``, without ``self`` among the arguments."""
        return self.__func__.autotune((self.__self__, *args), **options)

    def normalize_args(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """As ``Kernel.normalize_args``, without ``self`` among the arguments."""
        return self.__func__.normalize_args(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__func__, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.__self__, self.__func__.name)


class TypedKernel(Generic[P, R]):
    """What type checkers are told of a kernel in a class: it is a method there."""

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type) -> Self: ...
        @overload
        def __get__(
            self: TypedKernel[Concatenate[Any, Q], R], instance: object, owner: type
        ) -> KernelMethod[Q, R]: ...
        def __get__(self, instance: object, owner: type) -> Any: ...


def reduced(kernel: Any, function: Any, given: Mapping[str, Any]) -> str | tuple[Any, ...]:
    """What ``__reduce__`` of a kernel returns; ``given`` are keywords of its class.

    A name that leads to it, else its function with what it was given. What it has compiled stays
    behind.
    """
    module = sys.modules.get(function.__module__)
    others = [name for name, value in vars(module).items() if value is kernel] if module else []
    for name in (function.__qualname__, *others):
        if _find(module, name) is kernel:
            return name
    if _find(module, function.__qualname__) is function:
        return partial(type(kernel), **given), (function,)
    raise errors.KernelNotPicklable(
        function=function.__name__, name=f"{function.__module__}.{function.__qualname__}"
    )


def _find(owner: Any, path: str) -> Any:
    for name in path.split("."):
        owner = getattr(owner, name, None)
    return owner


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
