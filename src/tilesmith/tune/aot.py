"""``aot_kernel``: kernels whose configs are found before they are deployed.

Here every kernel is one: ``tilesmith tune`` finds configs ahead of time, and ``tilesmith cache``
takes them along. The decorator is for scripts that use it: one kernel for all shapes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilesmith.tune.autotune import kernel


def aot_kernel(
    fn: Callable[..., Any] | None = None,
    *,
    batched: Sequence[Sequence[int | None] | None] | None = None,
    collect_fn: Callable[..., Any] | None = None,
    measure_fn: Callable[..., Any] | None = None,
    **options: Any,
) -> Any:
    """A kernel for all shapes, as ``kernel(static_shapes=False)`` makes it.

    Args:
        fn: the function; left out where the decorator has arguments.
        batched: which axes of each argument are batches. Shapes are no part of what is compiled,
            and what is stored of tuning finds the nearest, so nothing depends on it.
        collect_fn: gives argument sets to tune for: hand them to ``kernel.autotune_multi``.
        measure_fn: gives those to measure: hand them to ``tilesmith bench``.
        options: as for ``kernel``.
    """
    if fn is None:
        return functools.partial(
            aot_kernel, batched=batched, collect_fn=collect_fn, measure_fn=measure_fn, **options
        )
    chosen: dict[str, Any] = {"static_shapes": False, **options}
    return kernel(fn, **chosen)
