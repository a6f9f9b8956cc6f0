"""Products of fp32 matrices in tf32 with warp roles in Gluon, for Hopper.

The matrix units read a tf32 operand from shared memory only where it lies along the summed axis.
A right-hand side stored by columns does. One stored by rows passes through registers: the result
is then computed transposed, since only the left operand may come from there.
"""

from __future__ import annotations

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from benchmarks.hand_written.warp_roles.primitives import barriers, descriptor, wait_for

BLOCK_K = 32
STAGES = 4
TOGETHER = 8
"""Row blocks walked side by side, for the L2 cache."""


@gluon.jit
def place(index, blocks, TOGETHER: gl.constexpr):
    rows, columns = blocks
    first = index // (TOGETHER * columns) * TOGETHER
    size = gl.minimum(rows - first, TOGETHER)
    rest = index % (TOGETHER * columns)
    return first + rest % size, rest // size


@gluon.jit
def load_role(
    tensors, buffers, bars, blocks, steps, IS_BY_ROWS: gl.constexpr, TOGETHER: gl.constexpr
):
    """One warp: copies tiles of both sides."""
    x, y = tensors
    x_buf, y_buf = buffers
    full, empty = bars
    stages: gl.constexpr = x_buf.shape[0]
    block_k: gl.constexpr = x_buf.shape[2]
    step = 0
    for index in range(gl.program_id(0), blocks[0] * blocks[1], gl.num_programs(0)):
        row, column = place(index, blocks, TOGETHER)
        for k in range(steps):
            at = step % stages
            wait_for(empty, step - stages, stages)
            mbarrier.expect(full.index(at), x.block_type.nbytes + y.block_type.nbytes)
            left = [row * x_buf.shape[1], k * block_k]
            tma.async_copy_global_to_shared(x, left, full.index(at), x_buf.index(at))
            if IS_BY_ROWS:
                right = [k * block_k, column * y_buf.shape[2]]
            else:
                right = [column * y_buf.shape[1], k * block_k]
            tma.async_copy_global_to_shared(y, right, full.index(at), y_buf.index(at))
            step += 1


@gluon.jit
def compute_role(
    group: gl.constexpr,
    out,
    buffers,
    bars,
    num_rows,
    num_columns,
    blocks,
    steps,
    IS_BY_ROWS: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    TOGETHER: gl.constexpr,
):
    """Four warps: half the tile."""
    x_buf, y_buf = buffers
    full, empty = bars
    stages: gl.constexpr = x_buf.shape[0]
    HALF: gl.constexpr = BLOCK_N // 2 if IS_BY_ROWS else BLOCK_M // 2
    WIDE: gl.constexpr = BLOCK_M if IS_BY_ROWS else BLOCK_N
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDE, 8])
    operand: gl.constexpr = gl.DotOperandLayout(0, layout, 1)
    step = 0
    for index in range(gl.program_id(0), blocks[0] * blocks[1], gl.num_programs(0)):
        row_block, column_block = place(index, blocks, TOGETHER)
        acc = gl.zeros([HALF, WIDE], gl.float32, layout)
        # Two steps at a time: an operand in registers outlives the start of its product.
        for k in range(0, steps, 2):
            for half in gl.static_range(2):
                at = step % stages
                wait_for(full, step, stages)
                if IS_BY_ROWS:
                    left = y_buf.index(at).slice(group * HALF, HALF, 1).permute((1, 0))
                    left = left.load(operand)
                    right = x_buf.index(at).permute((1, 0))
                else:
                    left = x_buf.index(at).slice(group * HALF, HALF, 0)
                    right = y_buf.index(at).permute((1, 0))
                product = warpgroup_mma(left, right, acc, use_acc=True, is_async=True)
                acc = warpgroup_mma_wait(1, [product])
                before = empty.index((step + stages - 1) % stages)
                mbarrier.arrive(before, count=1, pred=k + half > 0)
                step += 1
        acc = warpgroup_mma_wait(0, [acc])
        mbarrier.arrive(empty.index((step + stages - 1) % stages), count=1)
        mine = group * HALF + gl.arange(0, HALF, gl.SliceLayout(1, layout))[:, None]
        other = gl.arange(0, WIDE, gl.SliceLayout(0, layout))[None, :]
        row = row_block * BLOCK_M + (other if IS_BY_ROWS else mine)
        column = column_block * BLOCK_N + (mine if IS_BY_ROWS else other)
        is_inside = (row < num_rows) & (column < num_columns)
        gl.store(out + row.to(gl.int64) * num_columns + column, acc, mask=is_inside)


@gluon.jit
def matmul_kernel(
    x,
    y,
    out,
    num_rows,
    num_columns,
    steps,
    IS_BY_ROWS: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    TOGETHER: gl.constexpr,
):
    x_buf = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M, BLOCK_K], x.layout)
    if IS_BY_ROWS:
        y_buf = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_K, BLOCK_N], y.layout)
    else:
        y_buf = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_N, BLOCK_K], y.layout)
    bars = (barriers(STAGES, 1), barriers(STAGES, 2))
    blocks = (gl.cdiv(num_rows, BLOCK_M), gl.cdiv(num_columns, BLOCK_N))
    buffers = (x_buf, y_buf)
    gl.warp_specialize(
        [
            (
                compute_role,
                (
                    0,
                    out,
                    buffers,
                    bars,
                    num_rows,
                    num_columns,
                    blocks,
                    steps,
                    IS_BY_ROWS,
                    BLOCK_M,
                    BLOCK_N,
                    TOGETHER,
                ),
            ),
            (
                compute_role,
                (
                    1,
                    out,
                    buffers,
                    bars,
                    num_rows,
                    num_columns,
                    blocks,
                    steps,
                    IS_BY_ROWS,
                    BLOCK_M,
                    BLOCK_N,
                    TOGETHER,
                ),
            ),
            (load_role, ((x, y), buffers, bars, blocks, steps, IS_BY_ROWS, TOGETHER)),
        ],
        [4, 1],
        [240, 24],
    )


def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Product of fp32 matrices in tf32; the left one is stored by rows."""
    (num_rows, num_inner), num_columns = x.shape, y.size(1)
    out = torch.empty(num_rows, num_columns, device=x.device)
    is_by_rows = y.stride(1) == 1
    block_m, block_n = (256, 128) if is_by_rows else (128, 256)
    right = descriptor(y, [BLOCK_K, block_n]) if is_by_rows else descriptor(y.T, [block_n, BLOCK_K])
    pieces = triton.cdiv(num_rows, block_m) * triton.cdiv(num_columns, block_n)
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    # An even number of steps: what lies beyond the end is read as zero.
    steps = triton.cdiv(num_inner, 2 * BLOCK_K) * 2
    matmul_kernel[(min(pieces, processors),)](
        descriptor(x, [block_m, BLOCK_K]),
        right,
        out,
        num_rows,
        num_columns,
        steps,
        is_by_rows,
        block_m,
        block_n,
        BLOCK_K,
        STAGES,
        TOGETHER,
        num_warps=4,
        maxnreg=168,
    )
    return out
