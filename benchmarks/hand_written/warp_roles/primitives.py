"""What the kernels with warp roles share: barriers, layouts, sums in memory (Gluon, Hopper)."""

from __future__ import annotations

from typing import Any

import torch
from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
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


@gluon.jit
def load_role(tensors, buffers, bars, head, first_key, first, steps, BLOCK_M: gl.constexpr):
    """One warp: keys and values once, then queries as both groups are done with old ones."""
    q, k, v, d_out, lse, delta = tensors
    q_buf, k_buf, v_buf, do_buf, lse_buf, delta_buf = buffers
    kv_full, q_full, do_full, done = bars
    mbarrier.expect(kv_full.index(0), k.block_type.nbytes)
    tma.async_copy_global_to_shared(k, [head, first_key, 0], kv_full.index(0), k_buf)
    mbarrier.expect(kv_full.index(1), v.block_type.nbytes)
    tma.async_copy_global_to_shared(v, [head, first_key, 0], kv_full.index(1), v_buf)
    for i in range(steps):
        row = (first + i) * BLOCK_M
        at = i % 2
        wait_for(done, i - 2, 2)
        q_ready = q_full.index(at)
        mbarrier.expect(q_ready, q.block_type.nbytes + lse.block_type.nbytes)
        tma.async_copy_global_to_shared(q, [head, row, 0], q_ready, q_buf.index(at))
        tma.async_copy_global_to_shared(lse, [head, row], q_ready, lse_buf.index(at))
        do_ready = do_full.index(at)
        mbarrier.expect(do_ready, d_out.block_type.nbytes + delta.block_type.nbytes)
        tma.async_copy_global_to_shared(d_out, [head, row, 0], do_ready, do_buf.index(at))
        tma.async_copy_global_to_shared(delta, [head, row], do_ready, delta_buf.index(at))


@gluon.jit
def hide_future(scores, first_query, first_key):
    """Scores of keys (rows) and queries (columns) without what a query does not see."""
    layout: gl.constexpr = scores.type.layout
    query = first_query + gl.arange(0, scores.shape[1], gl.SliceLayout(0, layout))
    key = first_key + gl.arange(0, scores.shape[0], gl.SliceLayout(1, layout))
    return gl.where(query[None, :] >= key[:, None], scores, float("-inf"))


@gluon.jit
def store_rows(pointer, value, head, first_row, num_rows):
    layout: gl.constexpr = value.type.layout
    width: gl.constexpr = value.shape[1]
    row = first_row + gl.arange(0, value.shape[0], gl.SliceLayout(1, layout))
    column = gl.arange(0, width, gl.SliceLayout(0, layout))
    place = (head.to(gl.int64) * num_rows + row)[:, None] * width + column[None, :]
    gl.store(pointer + place, value.to(gl.bfloat16), mask=(row < num_rows)[:, None])


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
