"""The public decorator: kernels that know a tuner."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from tilesmith.jit.kernel import kernel as make_kernel
from tilesmith.schedule.config import Config
from tilesmith.tune.autotune import Autotuner


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
    return make_kernel(fn, tuner=Autotuner(), **options)
