"""What the kernels with warp roles share: barriers, layouts, sums in memory (Gluon, Hopper)."""

from __future__ import annotations

from typing import Any

import torch
from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

ROWS = 64
"""Rows of a product that one group of four warps computes."""


@gluon.jit
def barriers(number: gl.constexpr, arrivals: gl.constexpr):
    """Barriers in shared memory; each flips its phase after so many arrivals."""
    found = gl.allocate_shared_memory(gl.int64, [number, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(number):
        mbarrier.init(found.index(i), count=arrivals)
    return found


@gluon.jit
def wait_for(ring, step, LENGTH: gl.constexpr):
    """Wait until a ring of barriers has come to the given step; steps before the first are over."""
    turn = step + LENGTH
    mbarrier.wait(ring.index(turn % LENGTH), ((turn // LENGTH) & 1) ^ 1)


@builtin
def add_tile(descriptor, position, tile, _semantic: Any = None) -> None:
    """Have the copy engine add a tile of shared memory to global memory."""
    position = _semantic._convert_to_ir_values(position, require_i64=False)
    kind = ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(kind, descriptor.handle, position, tile.handle)


def shared_layout(block: list[int], dtype: torch.dtype) -> gl.NVMMASharedLayout:
    """The layout of a tile that both the copy engine and the matrix units read."""
    row = block[-1] * dtype.itemsize
    return gl.NVMMASharedLayout(min(128, row), dtype.itemsize * 8, len(block))


def descriptor(tensor: torch.Tensor, block: list[int]) -> TensorDescriptor:
    """A descriptor of a contiguous tensor in blocks."""
    return TensorDescriptor.from_tensor(tensor, block, shared_layout(block, tensor.dtype))


def vector_descriptor(tensor: torch.Tensor, length: int) -> TensorDescriptor:
    """A descriptor of the rows of a matrix of numbers, in pieces."""
    layout = gl.NVMMASharedLayout(0, tensor.element_size() * 8, 2)
    return TensorDescriptor.from_tensor(tensor, [1, length], layout)
