"""What users see of a kernel by its definition: attributes they may set, copies and pickles."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from typing_extensions import Self

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.function_protocol.objects import KernelSettings, reduced
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings


class DefinedKernel:
    """A kernel without its calls: a definition, which assignments replace as a whole."""

    def __init__(
        self, definition: KernelDefinition, key: Callable[..., Hashable] | None = None
    ) -> None:
        if key is not None and not callable(key):
            raise errors.InvalidArgumentKind(
                function="@kernel",
                problem=f"key is {kind_of(key)}",
                expected="a function of the kernel's arguments",
                fix="leave it out: calls of the same types and shapes share code anyway",
            )
        self.user_key = key
        """The user's own part of the key of a call."""
        self.use(definition)

    def use(self, definition: KernelDefinition) -> None:
        """Begin anew with another definition of the same function."""
        self.definition = definition
        self._settings = KernelSettings.of(definition.settings, self._change_settings)

    def _change_settings(self, settings: Settings) -> None:
        self.use(self.definition.changed(settings=settings, configs=self.configs))

    def __getitem__(self, grid: object) -> Any:
        """As kernels of Triton are launched; the loops of ours say how many programs there are."""
        raise errors.WrongArguments(
            function=self.name,
            problem="it is launched without a grid",
            signature=str(self.signature),
            fix=f"call it like a function: {self.name}(...)",
        )

    @property
    def fn(self) -> Callable[..., Any]:
        """The decorated function."""
        return self.definition.fn

    @property
    def name(self) -> str:
        """The function's name."""
        return self.definition.name

    @property
    def signature(self) -> inspect.Signature:
        """The function's signature."""
        return self.definition.arguments.plain

    @property
    def settings(self) -> Settings:
        """The settings. Assigning one (``kernel.settings.check = True``) drops what was bound."""
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._change_settings(settings)

    @property
    def configs(self) -> list[Config]:
        """The configs to choose from. Assigning others drops what was bound."""
        return self.definition.configs

    @configs.setter
    def configs(self, configs: Sequence[Config | Mapping[str, Any]]) -> None:
        settings = self.definition.settings
        self.use(self.definition.changed(settings=settings, configs=as_configs(configs)))

    @property
    def config(self) -> Config | None:
        """The config, where there is exactly one to use. Assigning one drops what was bound."""
        return self.configs[0] if len(self.configs) == 1 else None

    @config.setter
    def config(self, config: Config | Mapping[str, Any] | None) -> None:
        self.configs = [] if config is None else [config]

    def normalize_args(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Positional arguments with keywords placed and defaults applied."""
        return self.definition.arguments.normalize(*args, **kwargs)

    def _keywords(self) -> dict[str, Any]:
        """What its class was called with beside the function, as it is now."""
        definition = self.definition
        return {
            "configs": tuple(definition.configs),
            "settings": definition.settings,
            "key": self.user_key,
            "tuner": definition.tuner,
        }

    def __copy__(self) -> Self:
        """A kernel of the same function, settings and configs that has nothing bound."""
        kind: Any = type(self)
        return kind(self.fn, backends=self.definition.given_backends, **self._keywords())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()

    def __reduce__(self) -> str | tuple[Any, ...]:
        return reduced(self, self.fn, self._keywords())

    def kernel_source(self) -> str:
        """The source text of the function."""
        return inspect.getsource(self.fn)


def as_configs(configs: Iterable[Config | Mapping[str, Any]]) -> list[Config]:
    """Configs, dicts among them converted."""
    return [c if isinstance(c, Config) else Config.from_dict(c) for c in configs]
