"""``aot_kernel``: one kernel for all shapes, whose configs were decided ahead of time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, overload

from typing_extensions import ParamSpec, Unpack, override

from tilesmith.dispatch.decision_file import DecisionFile, find_file
from tilesmith.frontend.containers import tensors_in
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.kernel import Kernel
from tilesmith.jit.typed import KernelKeywords, KernelMaker, LateTuner, make_kernel
from tilesmith.runtime.device import target_of
from tilesmith.schedule.config import Config
from tilesmith.store.lookup import find_stored_config

P = ParamSpec("P")
R = TypeVar("R")
Key = Callable[..., Hashable]


class AotKeywords(KernelKeywords, total=False):
    """What ``@tilesmith.aot_kernel`` takes besides."""

    batched: Sequence[Sequence[int | None] | None] | None
    collect_fn: Callable[..., Any] | None
    measure_fn: Callable[..., Any] | None


class DecidedTuner(LateTuner):
    """Takes configs from the file beside the kernel's; without one it is an ordinary tuner.

    The file comes before what a search has stored: that is the best of one shape, and calls of a
    branch share code.
    """

    takes_stored = False

    def __init__(self, function: Callable[..., Any]) -> None:
        self._source = Path(function.__code__.co_filename)
        self._name = function.__name__

    def find(self, args: tuple[Any, ...]) -> DecisionFile | None:
        """What was decided for the device of these arguments."""
        tensor = next((found for value in args for found in tensors_in(value)), None)
        if tensor is None:
            return None
        return find_file(self._source, self._name, target_of(tensor.device))

    def key(self, user: Key | None, *args: Any) -> Hashable:
        """Calls that take the same branch share code."""
        found = self.find(args)
        branch = None if found is None else (found.version, found.key(*args))
        return branch if user is None else (branch, user(*args))

    @override
    def first_config(self, bound: BoundKernel, args: tuple[Any, ...]) -> Config | None:
        found = self.find(args)
        is_given = bool(bound.configs) or bound.settings.force_autotune
        if found is not None and not is_given:
            return bound.config_spec.normalize(Config.from_dict(found.choose(*args)))
        stored = None if is_given else find_stored_config(bound, args)
        return stored or super().first_config(bound, args)


@overload
def aot_kernel(fn: Callable[P, R], **options: Unpack[AotKeywords]) -> Kernel[P, R]: ...
@overload
def aot_kernel(**options: Unpack[AotKeywords]) -> KernelMaker: ...
def aot_kernel(
    fn: Any = None,
    *,
    batched: Sequence[Sequence[int | None] | None] | None = None,
    collect_fn: Callable[..., Any] | None = None,
    measure_fn: Callable[..., Any] | None = None,
    key: Key | None = None,
    **options: Any,
) -> Any:
    """A kernel for all shapes; ``tilesmith dispatch`` decides which config serves which sizes.

    It writes its decision into a file beside the kernel's own, which calls on such a device follow.
    Without a file the kernel is as ``kernel(static_shapes=False)`` makes it.

    Args:
        fn: the function; left out where the decorator has arguments.
        batched: which axes of each argument are batches. Sizes are compared as they are, so nothing
            depends on it.
        collect_fn: gives argument sets to tune for: hand them to ``autotuner.tune_shapes``.
        measure_fn: gives those to measure: hand them to ``tilesmith bench``.
        key: as for ``kernel``.
        options: as for ``kernel``.
    """
    if fn is None:
        given = {"batched": batched, "collect_fn": collect_fn, "measure_fn": measure_fn}
        return KernelMaker(aot_kernel, {**given, "key": key, **options})
    tuner = DecidedTuner(fn)
    chosen: dict[str, Any] = {"static_shapes": False, **options}
    return make_kernel(fn, tuner=tuner, key=partial(tuner.key, key), **chosen)
