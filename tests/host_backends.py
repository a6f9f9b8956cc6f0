"""What runs kernels on CPU tensors: two backends, and native code for several kinds of vectors."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import tilesmith as helion
from tilesmith.runtime.native.host_cpu import can_run, host_target
from tilesmith.targets import parse_target

BACKENDS = ("reference", "cpu")


def _vectors(arch: str) -> Any:
    target = parse_target(f"cpu:{arch}")
    is_possible = can_run(target, host_target())
    return pytest.param(
        f"cpu:{arch}",
        id=arch,
        marks=pytest.mark.skipif(not is_possible, reason=f"this CPU does not run {arch} code"),
    )


OLDER_TARGETS = [_vectors("avx2"), _vectors("sse")]
"""Parameters: targets with less than what an x86 host may have."""


@cache
def on_backend(kernel: Any, backend: str, **settings: Any) -> Any:
    """The same kernel, with its own configs and settings, on one backend."""
    changed: dict[str, Any] = {**kernel.settings.to_dict(), "backend": backend, **settings}
    return helion.kernel(kernel.fn, configs=kernel.configs, **changed)


def lanes() -> int:
    """Lanes of a vector of native code on this machine."""
    return host_target().vector_lanes
