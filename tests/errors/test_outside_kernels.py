"""Language functions called where they mean nothing: by ordinary Python, and in host code."""

from __future__ import annotations

import inspect

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc

VALUES = ("StackTensor", "Tile", "constexpr")
"""Names that are no functions of device code."""
EVERYWHERE = ("full", "zeros")
HOST_FUNCTIONS = ("register_block_size", "register_tunable", "specialize")
LOOP_FUNCTIONS = ("tile", "grid", "static_range", "jagged_tile", "barrier")
"""What these mean is decided by where they stand in the source."""
HOST_ERRORS = {"stacktensor_like": exc.StackTensorcOnHost}
FUNCTIONS = [name for name in hl.__all__ if name not in VALUES]
OTHERS = HOST_FUNCTIONS + LOOP_FUNCTIONS + EVERYWHERE
DEVICE_FUNCTIONS = [name for name in FUNCTIONS if name not in OTHERS]


def call(name: str) -> object:
    """Call it with as many tensors as it needs."""
    function = getattr(hl, name)
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.default is p.empty and p.kind in kinds]
    return function(*[torch.ones(2)] * len(needed))


@helion.kernel
def call_on_the_host(x, name: hl.constexpr):
    call(name)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
    return out


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_language_function_needs_a_kernel_around_it(name):
    with pytest.raises(exc.NotInsideKernel, match=f"hl.{name} was called outside a kernel"):
        call(name)


@pytest.mark.parametrize("name", DEVICE_FUNCTIONS)
def test_a_device_function_needs_a_device_loop_around_it(name):
    with pytest.raises(HOST_ERRORS.get(name, exc.DeviceAPIOnHost), match=f"hl.{name}"):
        call_on_the_host(torch.ones(4), name)
