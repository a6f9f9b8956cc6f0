"""Gradients of keys and values, heads of 64 and 128: two groups own 64 keys each.

The gradient of the scores passes through shared memory, and its product with the keys is taken one
step late, so that no group waits for the other; the copy engine adds the result to sums in memory.
"""

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
    add_tile,
    barriers,
    hide_future,
    load_role,
    store_rows,
    wait_for,
)


@gluon.jit
def add_role(group: gl.constexpr, sums, sum_buf, sum_bars, head, first, steps):
    """One warp: has the copy engine add what its group hands over."""
    sum_full, sum_empty = sum_bars
    tile = sum_buf.index(group)
    for i in range(steps):
        mbarrier.wait(sum_full.index(group), i & 1)
        row = (first + i) * sum_buf.shape[2]
        add_tile(sums, [head, row, group * sum_buf.shape[3]], tile)
        tma.store_wait(0)
        mbarrier.arrive(sum_empty.index(group), count=1)


@gluon.jit
def hand_over(group: gl.constexpr, value, i, sum_buf, sum_bars):
    """Give the i-th part of the sums to the warp that adds it."""
    sum_full, sum_empty = sum_bars
    mbarrier.wait(sum_empty.index(group), (i & 1) ^ 1)
    sum_buf.index(group).reshape([sum_buf.shape[2], sum_buf.shape[3]]).store(value)
    fence_async_shared()
    mbarrier.arrive(sum_full.index(group), count=1)


@gluon.jit
def narrow_role(
    group: gl.constexpr,
    d_k,
    d_v,
    buffers,
    ds_buf,
    sum_buf,
    bars,
    ds_full,
    sum_bars,
    head,
    first_key,
    first,
    steps,
    masked,
    num_keys,
    scale,
    out_scale,
    IS_CAUSAL: gl.constexpr,
    HAS_SUMS: gl.constexpr,
    IS_ONE_LOOP: gl.constexpr,
    BLOCK_M: gl.constexpr,
    WIDTH: gl.constexpr,
):
    """Four warps: 64 keys. Half the columns of the gradient of the queries, one step late."""
    q_buf, k_buf, v_buf, do_buf, lse_buf, delta_buf = buffers
    kv_full, q_full, do_full, done = bars
    HALF: gl.constexpr = WIDTH // 2
    score_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    key_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    sum_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, key_layout, 2)
    column: gl.constexpr = gl.SliceLayout(0, score_layout)
    dk = gl.zeros([64, WIDTH], gl.float32, key_layout)
    dv = gl.zeros([64, WIDTH], gl.float32, key_layout)
    zeros = gl.zeros([64, BLOCK_M], gl.float32, score_layout)
    sum_zeros = gl.zeros([BLOCK_M, HALF], gl.float32, sum_layout)
    keys = k_buf.reshape([128, WIDTH])
    my_keys = keys.slice(group * 64, 64, 0)
    my_values = v_buf.reshape([128, WIDTH]).slice(group * 64, 64, 0)
    my_columns = keys.slice(group * HALF, HALF, 1)
    mbarrier.wait(kv_full.index(0), 0)
    mbarrier.wait(q_full.index(0), 0)
    queries = q_buf.index(0).reshape([BLOCK_M, WIDTH]).permute((1, 0))
    scoring = warpgroup_mma(my_keys, queries, zeros, use_acc=False, is_async=True)
    mbarrier.wait(kv_full.index(1), 0)
    scores = warpgroup_mma_wait(0, [scoring])
    for IS_MASKED in gl.static_range(1, -1, -1):
        # Two loops, the first masked, or one that looks whether to mask.
        if IS_CAUSAL and not IS_ONE_LOOP:
            begin = 0 if IS_MASKED else masked
            end = masked if IS_MASKED else steps
        else:
            begin = 0
            end = 0 if IS_MASKED else steps
        for i in range(begin, end):
            at = i % 2
            wait_for(do_full, i, 2)
            d_out = do_buf.index(at).reshape([BLOCK_M, WIDTH])
            weighing = warpgroup_mma(
                my_values, d_out.permute((1, 0)), zeros, use_acc=False, is_async=True
            )
            lse = lse_buf.index(at).reshape([BLOCK_M]).load(column)
            logits = scores * scale - lse[None, :]
            if IS_MASKED:
                logits = hide_future(logits, (first + i) * BLOCK_M, first_key + group * 64)
            elif IS_CAUSAL and IS_ONE_LOOP:
                if i < masked:
                    logits = hide_future(logits, (first + i) * BLOCK_M, first_key + group * 64)
            weights = gl.exp2(logits)
            ready = gl.convert_layout(weights.to(gl.bfloat16), operand)
            dv_now = warpgroup_mma(ready, d_out, dv, use_acc=True, is_async=True)
            d_weights = warpgroup_mma_wait(1, [weighing])
            delta = delta_buf.index(at).reshape([BLOCK_M]).load(column)
            d_scores = (weights * (d_weights - delta[None, :])).to(gl.bfloat16)
            if HAS_SUMS:
                wait_for(done, i - 1, 2)
                ds_buf.index(at).slice(group * 64, 64, 0).store(d_scores)
                fence_async_shared()
                mbarrier.arrive(ds_full.index(at), count=1)
            rows = gl.convert_layout(d_scores, operand)
            tile = q_buf.index(at).reshape([BLOCK_M, WIDTH])
            dk_now = warpgroup_mma(rows, tile, dk, use_acc=True, is_async=True)
            dv = warpgroup_mma_wait(1, [dv_now])
            # The last step repeats its own scores: nothing reads them.
            following = gl.minimum(i + 1, steps - 1)
            if HAS_SUMS:
                wait_for(ds_full, i - 1, 2)
                summing = warpgroup_mma(
                    ds_buf.index((i + 1) % 2).permute((1, 0)),
                    my_columns,
                    sum_zeros,
                    use_acc=False,
                    is_async=True,
                )
            wait_for(q_full, following, 2)
            queries = q_buf.index(following % 2).reshape([BLOCK_M, WIDTH]).permute((1, 0))
            scoring = warpgroup_mma(my_keys, queries, zeros, use_acc=False, is_async=True)
            if HAS_SUMS:
                dk, part = warpgroup_mma_wait(1, [dk_now, summing])
                mbarrier.arrive(done.index(at), count=1)
                if i > 0:
                    hand_over(group, part, i - 1, sum_buf, sum_bars)
            else:
                dk = warpgroup_mma_wait(1, [dk_now])
                mbarrier.arrive(done.index(at), count=1)
            # Nothing may be in flight where the loop turns: ptxas would take the products in turn.
            scores = warpgroup_mma_wait(0, [scoring])
    if HAS_SUMS:
        wait_for(ds_full, steps - 1, 2)
        late = ds_buf.index((steps - 1) % 2).permute((1, 0))
        summing = warpgroup_mma(late, my_columns, sum_zeros, use_acc=False, is_async=True)
        hand_over(group, warpgroup_mma_wait(0, [summing]), steps - 1, sum_buf, sum_bars)
    store_rows(d_k, dk * out_scale, head, first_key + group * 64, num_keys)
    store_rows(d_v, dv, head, first_key + group * 64, num_keys)


@gluon.jit
def narrow_kernel(
    q,
    k,
    v,
    d_out,
    lse,
    delta,
    sums,
    d_k,
    d_v,
    num_queries,
    num_keys,
    scale,
    out_scale,
    IS_CAUSAL: gl.constexpr,
    HAS_SUMS: gl.constexpr,
    IS_ONE_LOOP: gl.constexpr,
    BLOCK_M: gl.constexpr,
    WIDTH: gl.constexpr,
):
    buffers = (
        gl.allocate_shared_memory(gl.bfloat16, [2, 1, BLOCK_M, WIDTH], q.layout),
        gl.allocate_shared_memory(gl.bfloat16, [1, 128, WIDTH], k.layout),
        gl.allocate_shared_memory(gl.bfloat16, [1, 128, WIDTH], v.layout),
        gl.allocate_shared_memory(gl.bfloat16, [2, 1, BLOCK_M, WIDTH], d_out.layout),
        gl.allocate_shared_memory(gl.float32, [2, 1, BLOCK_M], lse.layout),
        gl.allocate_shared_memory(gl.float32, [2, 1, BLOCK_M], delta.layout),
    )
    ds_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([128, BLOCK_M], gl.bfloat16)
    ds_buf = gl.allocate_shared_memory(gl.bfloat16, [2, 128, BLOCK_M], ds_layout)
    sum_buf = ds_buf
    if HAS_SUMS:
        sum_buf = gl.allocate_shared_memory(gl.float32, [2, 1, BLOCK_M, WIDTH // 2], sums.layout)
    bars = (barriers(2, 1), barriers(2, 1), barriers(2, 1), barriers(2, 2))
    ds_full = barriers(2, 2)
    sum_bars = (barriers(2, 1), barriers(2, 1))
    head = gl.program_id(1)
    first_key = gl.program_id(0) * 128
    tiles = gl.cdiv(num_queries, BLOCK_M)
    first = 0
    masked = 0
    if IS_CAUSAL:
        first = gl.minimum(first_key // BLOCK_M, tiles - 1)
        masked = gl.minimum(128 // BLOCK_M, tiles - first)
    steps = tiles - first
    if HAS_SUMS:
        gl.warp_specialize(
            [
                (
                    narrow_role,
                    (
                        0,
                        d_k,
                        d_v,
                        buffers,
                        ds_buf,
                        sum_buf,
                        bars,
                        ds_full,
                        sum_bars,
                        head,
                        first_key,
                        first,
                        steps,
                        masked,
                        num_keys,
                        scale,
                        out_scale,
                        IS_CAUSAL,
                        HAS_SUMS,
                        IS_ONE_LOOP,
                        BLOCK_M,
                        WIDTH,
                    ),
                ),
                (
                    narrow_role,
                    (
                        1,
                        d_k,
                        d_v,
                        buffers,
                        ds_buf,
                        sum_buf,
                        bars,
                        ds_full,
                        sum_bars,
                        head,
                        first_key,
                        first,
                        steps,
                        masked,
                        num_keys,
                        scale,
                        out_scale,
                        IS_CAUSAL,
                        HAS_SUMS,
                        IS_ONE_LOOP,
                        BLOCK_M,
                        WIDTH,
                    ),
                ),
                (
                    load_role,
                    (
                        (q, k, v, d_out, lse, delta),
                        buffers,
                        bars,
                        head,
                        first_key,
                        first,
                        steps,
                        BLOCK_M,
                    ),
                ),
                (add_role, (0, sums, sum_buf, sum_bars, head, first, steps)),
                (add_role, (1, sums, sum_buf, sum_bars, head, first, steps)),
            ],
            [4, 1, 1, 1],
            [240, 24, 24, 24],
        )
    else:
        gl.warp_specialize(
            [
                (
                    narrow_role,
                    (
                        0,
                        d_k,
                        d_v,
                        buffers,
                        ds_buf,
                        sum_buf,
                        bars,
                        ds_full,
                        sum_bars,
                        head,
                        first_key,
                        first,
                        steps,
                        masked,
                        num_keys,
                        scale,
                        out_scale,
                        IS_CAUSAL,
                        HAS_SUMS,
                        IS_ONE_LOOP,
                        BLOCK_M,
                        WIDTH,
                    ),
                ),
                (
                    narrow_role,
                    (
                        1,
                        d_k,
                        d_v,
                        buffers,
                        ds_buf,
                        sum_buf,
                        bars,
                        ds_full,
                        sum_bars,
                        head,
                        first_key,
                        first,
                        steps,
                        masked,
                        num_keys,
                        scale,
                        out_scale,
                        IS_CAUSAL,
                        HAS_SUMS,
                        IS_ONE_LOOP,
                        BLOCK_M,
                        WIDTH,
                    ),
                ),
                (
                    load_role,
                    (
                        (q, k, v, d_out, lse, delta),
                        buffers,
                        bars,
                        head,
                        first_key,
                        first,
                        steps,
                        BLOCK_M,
                    ),
                ),
            ],
            [4, 1],
            [240, 24],
        )
