"""The gradient of the queries in a kernel of its own: bit by bit the same each time."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from benchmarks.hand_written.warp_roles.primitives import (
    barriers,
    wait_for,
)


@gluon.jit
def load_for_queries_role(
    tensors, buffers, bars, head, query, tiles, BLOCK_N: gl.constexpr, V_STAGES: gl.constexpr
):
    """One warp: queries and the gradient of the output once, then keys and values."""
    q, k, v, d_out = tensors
    q_buf, do_buf, k_buf, v_buf = buffers
    q_full, do_full, k_full, k_empty, v_full, v_empty = bars
    for group in gl.static_range(2):
        place = [head, query + group * 64, 0]
        mbarrier.expect(q_full.index(group), q.block_type.nbytes)
        tma.async_copy_global_to_shared(q, place, q_full.index(group), q_buf.index(group))
        mbarrier.expect(do_full.index(group), d_out.block_type.nbytes)
        tma.async_copy_global_to_shared(d_out, place, do_full.index(group), do_buf.index(group))
    for j in range(tiles):
        key = (tiles - 1 - j) * BLOCK_N
        k_at, v_at = j % 2, j % V_STAGES
        wait_for(k_empty, j - 2, 2)
        mbarrier.expect(k_full.index(k_at), k.block_type.nbytes)
        tma.async_copy_global_to_shared(k, [head, key, 0], k_full.index(k_at), k_buf.index(k_at))
        wait_for(v_empty, j - V_STAGES, V_STAGES)
        mbarrier.expect(v_full.index(v_at), v.block_type.nbytes)
        tma.async_copy_global_to_shared(v, [head, key, 0], v_full.index(v_at), v_buf.index(v_at))


@gluon.jit
def query_role(
    group: gl.constexpr,
    lse,
    delta,
    d_q,
    buffers,
    bars,
    head,
    query,
    tiles,
    padded,
    scale,
    out_scale,
    IS_CAUSAL: gl.constexpr,
    BLOCK_N: gl.constexpr,
    V_STAGES: gl.constexpr,
    WIDTH: gl.constexpr,
):
    """Four warps: the gradient of 64 queries; that of the scores never leaves the registers."""
    q_buf, do_buf, k_buf, v_buf = buffers
    q_full, do_full, k_full, k_empty, v_full, v_empty = bars
    small: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    large: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, large, 2)
    queries = q_buf.index(group).reshape([64, WIDTH])
    d_out = do_buf.index(group).reshape([64, WIDTH])
    first_query = query + group * 64
    row = first_query + gl.arange(0, 64, gl.SliceLayout(1, small))
    row_lse = gl.load(lse + head.to(gl.int64) * padded + row)
    row_delta = gl.load(delta + head.to(gl.int64) * padded + row)
    dq = gl.zeros([64, WIDTH], gl.float32, large)
    zeros = gl.zeros([64, BLOCK_N], gl.float32, small)
    mbarrier.wait(q_full.index(group), 0)
    mbarrier.wait(do_full.index(group), 0)
    mbarrier.wait(k_full.index(0), 0)
    keys = k_buf.index(0).reshape([BLOCK_N, WIDTH]).permute((1, 0))
    scoring = warpgroup_mma(queries, keys, zeros, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, [scoring])
    for j in range(tiles):
        wait_for(v_full, j, V_STAGES)
        values = v_buf.index(j % V_STAGES).reshape([BLOCK_N, WIDTH]).permute((1, 0))
        weighing = warpgroup_mma(d_out, values, zeros, use_acc=False, is_async=True)
        logits = scores * scale - row_lse[:, None]
        if IS_CAUSAL:
            if (tiles - j) * BLOCK_N > first_query:
                key = (tiles - 1 - j) * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, small))
                logits = gl.where(row[:, None] >= key[None, :], logits, float("-inf"))
        weights = gl.exp2(logits)
        d_weights = warpgroup_mma_wait(0, [weighing])
        mbarrier.arrive(v_empty.index(j % V_STAGES), count=1)
        d_scores = (weights * (d_weights - row_delta[:, None])).to(gl.bfloat16)
        rows = gl.convert_layout(d_scores, operand)
        now = k_buf.index(j % 2).reshape([BLOCK_N, WIDTH])
        dq_now = warpgroup_mma(rows, now, dq, use_acc=True, is_async=True)
        following = gl.minimum(j + 1, tiles - 1)
        wait_for(k_full, following, 2)
        keys = k_buf.index(following % 2).reshape([BLOCK_N, WIDTH]).permute((1, 0))
        scoring = warpgroup_mma(queries, keys, zeros, use_acc=False, is_async=True)
        dq = warpgroup_mma_wait(1, [dq_now])
        mbarrier.arrive(k_empty.index(j % 2), count=1)
        scores = warpgroup_mma_wait(0, [scoring])
    q_buf.index(group).reshape([64, WIDTH]).store((dq * out_scale).to(gl.bfloat16))
    fence_async_shared()
    tma.async_copy_shared_to_global(d_q, [head, first_query, 0], q_buf.index(group))
    tma.store_wait(0)


@gluon.jit
def query_kernel(
    q,
    k,
    v,
    d_out,
    d_q,
    lse,
    delta,
    num_keys,
    padded,
    scale,
    out_scale,
    IS_CAUSAL: gl.constexpr,
    BLOCK_N: gl.constexpr,
    V_STAGES: gl.constexpr,
    WIDTH: gl.constexpr,
):
    buffers = (
        gl.allocate_shared_memory(gl.bfloat16, [2, 1, 64, WIDTH], q.layout),
        gl.allocate_shared_memory(gl.bfloat16, [2, 1, 64, WIDTH], d_out.layout),
        gl.allocate_shared_memory(gl.bfloat16, [2, 1, BLOCK_N, WIDTH], k.layout),
        gl.allocate_shared_memory(gl.bfloat16, [V_STAGES, 1, BLOCK_N, WIDTH], v.layout),
    )
    bars = (
        barriers(2, 1),
        barriers(2, 1),
        barriers(2, 1),
        barriers(2, 2),
        barriers(V_STAGES, 1),
        barriers(V_STAGES, 2),
    )
    head = gl.program_id(1)
    block = gl.program_id(0)
    end = num_keys
    if IS_CAUSAL:
        block = gl.num_programs(0) - 1 - block
        end = gl.minimum(num_keys, (block + 1) * 128)
    query = block * 128
    tiles = gl.cdiv(end, BLOCK_N)
    gl.warp_specialize(
        [
            (
                query_role,
                (
                    0,
                    lse,
                    delta,
                    d_q,
                    buffers,
                    bars,
                    head,
                    query,
                    tiles,
                    padded,
                    scale,
                    out_scale,
                    IS_CAUSAL,
                    BLOCK_N,
                    V_STAGES,
                    WIDTH,
                ),
            ),
            (
                query_role,
                (
                    1,
                    lse,
                    delta,
                    d_q,
                    buffers,
                    bars,
                    head,
                    query,
                    tiles,
                    padded,
                    scale,
                    out_scale,
                    IS_CAUSAL,
                    BLOCK_N,
                    V_STAGES,
                    WIDTH,
                ),
            ),
            (
                load_for_queries_role,
                ((q, k, v, d_out), buffers, bars, head, query, tiles, BLOCK_N, V_STAGES),
            ),
        ],
        [4, 1],
        [240, 24],
    )
