"""Tilesmith: PyTorch with tiles.

A kernel is a Python function with loops over ``hl.tile(...)`` and torch operations inside; it runs
on NVIDIA and AMD GPUs through Triton, and on the CPU. Names load on first use: the command line and
the processes it starts often need none that loads torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tilesmith.version import __version__ as __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilesmith import exc, experimental, language, runtime
    from tilesmith.dispatch.decorator import aot_kernel
    from tilesmith.frontend.language.host_functions import cdiv, next_power_of_2
    from tilesmith.jit.kernel import Kernel
    from tilesmith.jit.output.code import OutputCodeOptions
    from tilesmith.jit.typed import kernel
    from tilesmith.schedule.config import Config
    from tilesmith.settings import RefMode, Settings

    jit = kernel

    def from_cache(
        *, max_configs: int | None = None, configs: Sequence[Config] = ()
    ) -> Callable[..., object]:
        """An ``autotuner_fn`` that measures what earlier searches found good, and ``configs``."""
        ...


__all__ = [
    "Config", "Kernel", "OutputCodeOptions", "RefMode", "Settings", "aot_kernel", "cdiv", "exc",
    "experimental", "from_cache", "jit", "kernel", "language", "next_power_of_2", "runtime",
]  # fmt: skip

_PLACES = {
    "Config": "tilesmith.schedule.config:Config",
    "Kernel": "tilesmith.jit.kernel:Kernel",
    "OutputCodeOptions": "tilesmith.jit.output.code:OutputCodeOptions",
    "RefMode": "tilesmith.settings:RefMode",
    "Settings": "tilesmith.settings:Settings",
    "aot_kernel": "tilesmith.dispatch.decorator:aot_kernel",
    "cdiv": "tilesmith.frontend.language.host_functions:cdiv",
    "exc": "tilesmith.exc",
    "experimental": "tilesmith.experimental",
    "from_cache": "tilesmith.autotuner:from_cache",
    "jit": "tilesmith.jit.typed:kernel",
    "kernel": "tilesmith.jit.typed:kernel",
    "language": "tilesmith.language",
    "next_power_of_2": "tilesmith.frontend.language.host_functions:next_power_of_2",
    "runtime": "tilesmith.runtime",
}
"""Where each public name is: a module, or a name in one."""
_WHOLE = ("tilesmith.tune.autotune", "tilesmith.backends.table")
"""Load every part that a kernel may need."""

# Loading the folder of that name later would put it in the place of the decorator.
importlib.import_module("tilesmith.jit")
del globals()["jit"]

if not TYPE_CHECKING:  # a checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name in _PLACES:
            module, _, attribute = _PLACES[name].partition(":")
            found = importlib.import_module(module)
            globals()[name] = getattr(found, attribute) if attribute else found
        elif not name.startswith("_"):
            # The folders too are there after `import tilesmith` alone.
            for whole in _WHOLE:
                importlib.import_module(whole)
        if name in globals():
            return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
