"""``tilesmith.kernel``: kernels with a tuner, which loads when there is something to search."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.kernel import kernel as make_kernel
from tilesmith.jit.tuner import MultiRequest, Tuner, TuneRequest
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings


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


def searches_at_first_call(bound: BoundKernel) -> bool:
    """Whether a first call measures: several Configs are given, or the settings ask for it."""
    is_given = len(bound.configs) == 1 and not bound.settings.force_autotune
    return not is_given and (len(bound.configs) > 1 or wants_search(bound.settings))


def wants_search(settings: Settings) -> bool:
    """Whether a first call without any Config searches."""
    if settings.autotune_budget_seconds is not None:
        return settings.autotune_budget_seconds > 0.0
    return settings.force_autotune or settings.autotune_effort != "none"


def kernel(
    fn: Callable[..., Any] | None = None,
    *,
    config: Config | Mapping[str, Any] | None = None,
    configs: Sequence[Config | Mapping[str, Any]] | None = None,
    key: Callable[..., Hashable] | None = None,
    **settings: Any,
) -> Any:
    """Turn a function with device loops into a kernel; bare or with arguments.

    Example:
        ``@tilesmith.kernel(config=tilesmith.Config(block_sizes=[64]), static_shapes=False)``
    """
    options: dict[str, Any] = {"config": config, "configs": configs, "key": key, **settings}
    if fn is None:
        return partial(kernel, **options)
    return make_kernel(fn, tuner=LateTuner(), **options)


def aot_kernel(
    fn: Callable[..., Any] | None = None,
    *,
    batched: Sequence[Sequence[int | None] | None] | None = None,
    collect_fn: Callable[..., Any] | None = None,
    measure_fn: Callable[..., Any] | None = None,
    **options: Any,
) -> Any:
    """A kernel for all shapes, as ``kernel(static_shapes=False)`` makes it.

    For scripts that tune ahead of time: here ``tilesmith tune`` does so for every kernel, and
    ``tilesmith cache`` takes along what it finds.

    Args:
        fn: the function; left out where the decorator has arguments.
        batched: which axes of each argument are batches. Shapes are no part of what is compiled,
            and what is stored of tuning finds the nearest, so nothing depends on it.
        collect_fn: gives argument sets to tune for: hand them to ``kernel.autotune_multi``.
        measure_fn: gives those to measure: hand them to ``tilesmith bench``.
        options: as for ``kernel``.
    """
    if fn is None:
        return partial(
            aot_kernel, batched=batched, collect_fn=collect_fn, measure_fn=measure_fn, **options
        )
    chosen: dict[str, Any] = {"static_shapes": False, **options}
    return kernel(fn, **chosen)
