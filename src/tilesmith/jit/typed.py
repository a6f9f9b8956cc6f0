"""``tilesmith.kernel``: kernels with a tuner, which loads when there is something to search.

To a type checker a kernel has the parameters and the result of its function, and misspelt settings
are mistakes. Settings and Configs say whether a first call searches.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, overload

from typing_extensions import ParamSpec, Unpack

import tilesmith.exc as errors
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.function_protocol.signature import is_method
from tilesmith.jit.kernel import Kernel, MethodKernel
from tilesmith.jit.tuner import MultiRequest, Tuner, TuneRequest
from tilesmith.jit.visible.defined_kernel import as_configs
from tilesmith.keywords import SettingKeywords
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")


class KernelKeywords(SettingKeywords, total=False):
    """What ``@tilesmith.kernel`` takes: configs, a key, and every setting."""

    config: Config | Mapping[str, Any] | None
    configs: Sequence[Config | Mapping[str, Any]] | None
    key: Callable[..., Hashable] | None
    settings: Settings


class KernelMaker:
    """A decorator with its arguments given."""

    def __init__(self, decorator: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self._decorator, self._options = decorator, options

    def __call__(self, fn: Callable[P, R], /) -> Kernel[P, R]:
        """Turn a function into a kernel."""
        return self._decorator(fn, **self._options)


class LateTuner:
    """Stands for an ``Autotuner``, which loads at the first search: most programs never search."""

    takes_stored = True

    def first_config(self, bound: BoundKernel, args: tuple[Any, ...]) -> Config | None:
        """For a first call, with nothing stored: measured now; None: the given or the default."""
        return _autotuner().first_config(bound, args) if searches_at_first_call(bound) else None

    def tune(self, bound: Any, args: tuple[Any, ...], request: TuneRequest) -> Config | None:
        """The best Config that a search finds; None if no candidate works."""
        return _autotuner().tune(bound, args, request)

    def tune_multi(
        self, cases: Sequence[tuple[Any, tuple[Any, ...]]], request: MultiRequest
    ) -> Config | None:
        """One Config for several workloads."""
        return _autotuner().tune_multi(cases, request)


def _autotuner() -> Tuner:
    return importlib.import_module("tilesmith.tune.autotune").Autotuner()


@overload
def kernel(fn: Callable[P, R], **options: Unpack[KernelKeywords]) -> Kernel[P, R]: ...
@overload
def kernel(**options: Unpack[KernelKeywords]) -> KernelMaker: ...
def kernel(fn: Any = None, **options: Any) -> Any:
    """Turn a function with device loops into a kernel; bare or with arguments.

    Args:
        fn: the function; left out where the decorator has arguments.
        options: ``config`` or ``configs`` to run with, ``key``: a function of the arguments whose
            result is part of what makes calls share compiled code; and every setting
            (``tilesmith.Settings``).

    Example:
        ``@tilesmith.kernel(config=tilesmith.Config(block_sizes=[64]), static_shapes=False)``
    """
    if fn is None:
        return KernelMaker(kernel, options)
    return make_kernel(fn, tuner=LateTuner(), **options)


def make_kernel(
    fn: Callable[..., Any] | None = None,
    *,
    config: Config | Mapping[str, Any] | None = None,
    configs: Sequence[Config | Mapping[str, Any]] | None = None,
    key: Callable[..., Hashable] | None = None,
    tuner: Tuner | None = None,
    **settings: Any,
) -> Any:
    """A kernel with a tuner of the caller's choice, or without; a decorator, too."""
    if fn is None:
        return partial(
            make_kernel, config=config, configs=configs, key=key, tuner=tuner, **settings
        )
    if config is not None and configs is not None:
        raise errors.ConflictingArguments(first="config", second="configs")
    given = as_configs([config] if config is not None else configs or ())
    made = MethodKernel if is_method(fn) else Kernel
    return made(fn, configs=given, settings=_settings(settings), key=key, tuner=tuner)


def _settings(given: Mapping[str, Any]) -> Settings:
    whole = given.get("settings")
    if whole is None:
        return Settings(**given)
    if len(given) > 1:
        raise errors.ConflictingArguments(first="settings", second="other settings keywords")
    return whole


def searches_at_first_call(bound: BoundKernel) -> bool:
    """Whether a first call measures: several Configs are given, or the settings ask for it."""
    is_given = len(bound.configs) == 1 and not bound.settings.force_autotune
    return not is_given and (len(bound.configs) > 1 or wants_search(bound.settings))


def wants_search(settings: Settings) -> bool:
    """Whether a first call without any Config searches."""
    if settings.autotune_budget_seconds is not None:
        return settings.autotune_budget_seconds > 0.0
    return settings.force_autotune or settings.autotune_effort != "none"
