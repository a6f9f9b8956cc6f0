"""The backward of attention with warp roles in Gluon, for Hopper.

A program owns a block of keys and walks the queries. Heads of 64 and 128: two groups own 64 keys
each; heads of 256: one group owns the gradient of the values, the other that of the keys, and the
weights pass from the first to the second. The gradient of the scores passes through shared memory,
and its product with the keys is taken one step late, so that no group waits for the other; the
copy engine (or red.global.v4) adds the result to sums in memory. `repeatable_attention_backward`
computes the gradient of the queries in a kernel of its own instead: bit by bit the same each time.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from benchmarks.hand_written.warp_roles import (
    ROWS,
    add_tile,
    barriers,
    descriptor,
    vector_descriptor,
    wait_for,
)

QUERIES = {64: 128, 128: 64, 256: 64}
"""Queries in a tile, by width of the head."""
PIECE = 64
"""Columns of a sum that one instruction of a wide head adds."""


@triton.jit
def prepare_kernel(
    out,
    d_out,
    delta,
    sums,
    num_queries,
    padded,
    HAS_SUMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Sum of the output times its gradient, per query; zeros where sums will be."""
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.arange(0, WIDTH)[None, :]
    place = (head * num_queries + row)[:, None] * WIDTH + column
    is_inside = (row < num_queries)[:, None]
    product = tl.load(out + place, is_inside, 0.0).to(tl.float32)
    product *= tl.load(d_out + place, is_inside, 0.0).to(tl.float32)
    tl.store(delta + head * padded + row, tl.sum(product, 1), row < padded)
    if HAS_SUMS:
        zeros = tl.zeros([BLOCK_M, WIDTH], tl.float32)
        tl.store(sums + (head * padded + row)[:, None] * WIDTH + column, zeros)


@triton.jit
def finish_kernel(
    sums,
    d_q,
    num_queries,
    padded,
    scale,
    BLOCK_M: tl.constexpr,
    WIDTH: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Sums to the gradient of the queries. PIECE: they lie in the order of the accumulators."""
    head = tl.program_id(1).to(tl.int64)
    row = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    place = (head * padded + row) * WIDTH + column
    if PIECE:
        # 64 rows: 4 warps, 2 halves, 8 lanes; columns: eights, 4 lanes, pairs.
        within, rest = column % PIECE, row % 64
        place = (within // 8 * 4 + rest // 16) * 8 + rest % 8
        place = (place * 4 + within // 2 % 4) * 4 + rest // 8 % 2 * 2 + within % 2
        place += ((head * padded + row) // 64 * (WIDTH // PIECE) + column // PIECE) * (64 * PIECE)
    value = tl.load(sums + place) * scale
    result = d_q + (head * num_queries + row) * WIDTH + column
    tl.store(result, value.to(d_q.dtype.element_ty), row < num_queries)


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


@gluon.jit
def add_registers(pointer, value):
    """Add numbers to memory in the order of the accumulators, four of a thread at once."""
    rows: gl.constexpr = value.shape[1] // 8
    layout: gl.constexpr = gl.BlockedLayout([1, 1, 4], [1, 32, 1], [1, 4, 1], [2, 1, 0])
    value = value.reshape([4, 2, 8, rows, 4, 2]).permute((3, 0, 2, 4, 1, 5))
    value = gl.convert_layout(value.reshape([rows, 128, 4]), layout, assert_trivial=True)
    piece = gl.arange(0, rows, gl.SliceLayout(1, gl.SliceLayout(2, layout)))
    thread = gl.arange(0, 128, gl.SliceLayout(0, gl.SliceLayout(2, layout)))
    number = gl.arange(0, 4, gl.SliceLayout(0, gl.SliceLayout(1, layout)))
    place = piece[:, None, None] * 512 + thread[None, :, None] * 4 + number[None, None, :]
    gl.inline_asm_elementwise(
        "{ red.relaxed.gpu.global.add.v4.f32 [$4], {$8, $9, $10, $11};"
        " mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0; }",
        "=r,=r,=r,=r,l,l,l,l,r,r,r,r",
        [(pointer + place).to(gl.int64, bitcast=True), value],
        dtype=gl.int32,
        is_pure=False,
        pack=4,
    )


@gluon.jit
def part_of_sums(sums, head, tile, tiles, piece, WIDTH: gl.constexpr):
    """Where a piece of 64 queries and 64 columns lies among the sums."""
    row = head.to(gl.int64) * (gl.cdiv(tiles, 2) * 2) + tile
    return sums + (row * (WIDTH // 64) + piece) * (64 * 64)


@gluon.jit
def value_role(
    sums,
    d_v,
    buffers,
    p_buf,
    ds_buf,
    bars,
    p_full,
    ds_full,
    head,
    first_key,
    first,
    steps,
    num_keys,
    scale,
    IS_CAUSAL: gl.constexpr,
    HAS_SUMS: gl.constexpr,
    WIDTH: gl.constexpr,
):
    """Four warps: weights, gradient of the values, half the sums one step late."""
    q_buf, k_buf, _v_buf, do_buf, lse_buf, _delta_buf = buffers
    kv_full, q_full, do_full, done = bars
    small: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    large: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, large, 2)
    dv = gl.zeros([64, WIDTH], gl.float32, large)
    zeros = gl.zeros([64, 64], gl.float32, small)
    keys = k_buf.reshape([64, WIDTH])
    mbarrier.wait(kv_full.index(0), 0)
    mbarrier.wait(q_full.index(0), 0)
    queries = q_buf.index(0).reshape([64, WIDTH]).permute((1, 0))
    scoring = warpgroup_mma(keys, queries, zeros, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, [scoring])
    for i in range(steps):
        at = i % 2
        lse = lse_buf.index(at).reshape([64]).load(gl.SliceLayout(0, small))
        logits = scores * scale - lse[None, :]
        if IS_CAUSAL:
            if i == 0:
                logits = hide_future(logits, first * 64, first_key)
        weights = gl.exp2(logits).to(gl.bfloat16)
        ready = gl.convert_layout(weights, operand)
        wait_for(do_full, i, 2)
        d_out = do_buf.index(at).reshape([64, WIDTH])
        dv_now = warpgroup_mma(ready, d_out, dv, use_acc=True, is_async=True)
        wait_for(done, i - 2, 2)
        p_buf.index(at).store(weights)
        mbarrier.arrive(p_full.index(at), count=1)
        following = gl.minimum(i + 1, steps - 1)
        if HAS_SUMS:
            wait_for(ds_full, i - 1, 2)
            late = ds_buf.index((i + 1) % 2).permute((1, 0))
            summing = warpgroup_mma(late, keys.slice(0, 64, 1), zeros, use_acc=False, is_async=True)
            dv = warpgroup_mma_wait(1, [dv_now])
            more = warpgroup_mma(late, keys.slice(64, 64, 1), zeros, use_acc=False, is_async=True)
            part = warpgroup_mma_wait(1, [summing])
            if i > 0:
                tile = first + i - 1
                add_registers(part_of_sums(sums, head, tile, first + steps, 0, WIDTH), part)
            wait_for(q_full, following, 2)
            queries = q_buf.index(following % 2).reshape([64, WIDTH]).permute((1, 0))
            scoring = warpgroup_mma(keys, queries, zeros, use_acc=False, is_async=True)
            part = warpgroup_mma_wait(1, [more])
            mbarrier.arrive(done.index(at), count=1)
            if i > 0:
                tile = first + i - 1
                add_registers(part_of_sums(sums, head, tile, first + steps, 1, WIDTH), part)
        else:
            wait_for(q_full, following, 2)
            queries = q_buf.index(following % 2).reshape([64, WIDTH]).permute((1, 0))
            scoring = warpgroup_mma(keys, queries, zeros, use_acc=False, is_async=True)
            dv = warpgroup_mma_wait(1, [dv_now])
            mbarrier.arrive(done.index(at), count=1)
        scores = warpgroup_mma_wait(0, [scoring])
    if HAS_SUMS:
        wait_for(ds_full, steps - 1, 2)
        last = ds_buf.index((steps - 1) % 2).permute((1, 0))
        for piece in gl.static_range(2):
            columns = keys.slice(piece * 64, 64, 1)
            part = warpgroup_mma(last, columns, zeros, use_acc=False, is_async=True)
            part = warpgroup_mma_wait(0, [part])
            tile = first + steps - 1
            add_registers(part_of_sums(sums, head, tile, first + steps, piece, WIDTH), part)
    store_rows(d_v, dv, head, first_key, num_keys)


@gluon.jit
def key_role(
    sums,
    d_k,
    buffers,
    p_buf,
    ds_buf,
    bars,
    p_full,
    ds_full,
    head,
    first_key,
    first,
    steps,
    num_keys,
    out_scale,
    HAS_SUMS: gl.constexpr,
    WIDTH: gl.constexpr,
):
    """Four warps: gradients of the weights, the scores and the keys, the other half of the sums."""
    q_buf, k_buf, v_buf, do_buf, _lse_buf, delta_buf = buffers
    kv_full, q_full, do_full, done = bars
    small: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    large: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, large, 2)
    dk = gl.zeros([64, WIDTH], gl.float32, large)
    zeros = gl.zeros([64, 64], gl.float32, small)
    keys = k_buf.reshape([64, WIDTH])
    values = v_buf.reshape([64, WIDTH])
    mbarrier.wait(kv_full.index(0), 0)
    mbarrier.wait(kv_full.index(1), 0)
    mbarrier.wait(do_full.index(0), 0)
    d_out = do_buf.index(0).reshape([64, WIDTH]).permute((1, 0))
    weighing = warpgroup_mma(values, d_out, zeros, use_acc=False, is_async=True)
    d_weights = warpgroup_mma_wait(0, [weighing])
    for i in range(steps):
        at = i % 2
        delta = delta_buf.index(at).reshape([64]).load(gl.SliceLayout(0, small))
        wait_for(p_full, i, 2)
        weights = p_buf.index(at).load(small).to(gl.float32)
        d_scores = (weights * (d_weights - delta[None, :])).to(gl.bfloat16)
        wait_for(done, i - 1, 2)
        ds_buf.index(at).store(d_scores)
        fence_async_shared()
        mbarrier.arrive(ds_full.index(at), count=1)
        wait_for(q_full, i, 2)
        rows = gl.convert_layout(d_scores, operand)
        tile = q_buf.index(at).reshape([64, WIDTH])
        dk_now = warpgroup_mma(rows, tile, dk, use_acc=True, is_async=True)
        following = gl.minimum(i + 1, steps - 1)
        if HAS_SUMS:
            wait_for(ds_full, i, 2)
            now = ds_buf.index(at).permute((1, 0))
            summing = warpgroup_mma(
                now, keys.slice(128, 64, 1), zeros, use_acc=False, is_async=True
            )
            dk = warpgroup_mma_wait(1, [dk_now])
            more = warpgroup_mma(now, keys.slice(192, 64, 1), zeros, use_acc=False, is_async=True)
            part = warpgroup_mma_wait(1, [summing])
            add_registers(part_of_sums(sums, head, first + i, first + steps, 2, WIDTH), part)
            wait_for(do_full, following, 2)
            d_out = do_buf.index(following % 2).reshape([64, WIDTH]).permute((1, 0))
            weighing = warpgroup_mma(values, d_out, zeros, use_acc=False, is_async=True)
            part = warpgroup_mma_wait(1, [more])
            mbarrier.arrive(done.index(at), count=1)
            add_registers(part_of_sums(sums, head, first + i, first + steps, 3, WIDTH), part)
        else:
            wait_for(do_full, following, 2)
            d_out = do_buf.index(following % 2).reshape([64, WIDTH]).permute((1, 0))
            weighing = warpgroup_mma(values, d_out, zeros, use_acc=False, is_async=True)
            dk = warpgroup_mma_wait(1, [dk_now])
            mbarrier.arrive(done.index(at), count=1)
        d_weights = warpgroup_mma_wait(0, [weighing])
    store_rows(d_k, dk * out_scale, head, first_key, num_keys)


@gluon.jit
def wide_kernel(
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
    WIDTH: gl.constexpr,
):
    gl.static_assert(WIDTH == 256)
    buffers = (
        gl.allocate_shared_memory(gl.bfloat16, [2, 1, 64, WIDTH], q.layout),
        gl.allocate_shared_memory(gl.bfloat16, [1, 64, WIDTH], k.layout),
        gl.allocate_shared_memory(gl.bfloat16, [1, 64, WIDTH], v.layout),
        gl.allocate_shared_memory(gl.bfloat16, [2, 1, 64, WIDTH], d_out.layout),
        gl.allocate_shared_memory(gl.float32, [2, 1, 64], lse.layout),
        gl.allocate_shared_memory(gl.float32, [2, 1, 64], delta.layout),
    )
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, 64], gl.bfloat16)
    p_buf = gl.allocate_shared_memory(gl.bfloat16, [2, 64, 64], layout)
    ds_buf = gl.allocate_shared_memory(gl.bfloat16, [2, 64, 64], layout)
    bars = (barriers(2, 1), barriers(2, 1), barriers(2, 1), barriers(2, 2))
    p_full = barriers(2, 1)
    ds_full = barriers(2, 1)
    head = gl.program_id(1)
    first_key = gl.program_id(0) * 64
    tiles = gl.cdiv(num_queries, 64)
    first = 0
    if IS_CAUSAL:
        first = gl.minimum(first_key // 64, tiles - 1)
    steps = tiles - first
    gl.warp_specialize(
        [
            (
                value_role,
                (
                    sums,
                    d_v,
                    buffers,
                    p_buf,
                    ds_buf,
                    bars,
                    p_full,
                    ds_full,
                    head,
                    first_key,
                    first,
                    steps,
                    num_keys,
                    scale,
                    IS_CAUSAL,
                    HAS_SUMS,
                    WIDTH,
                ),
            ),
            (
                key_role,
                (
                    sums,
                    d_k,
                    buffers,
                    p_buf,
                    ds_buf,
                    bars,
                    p_full,
                    ds_full,
                    head,
                    first_key,
                    first,
                    steps,
                    num_keys,
                    out_scale,
                    HAS_SUMS,
                    WIDTH,
                ),
            ),
            (
                load_role,
                ((q, k, v, d_out, lse, delta), buffers, bars, head, first_key, first, steps, 64),
            ),
        ],
        [4, 1],
        [240, 24],
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


def flattened(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Heads, length, width."""
    return [tensor.reshape(-1, tensor.size(-2), tensor.size(-1)) for tensor in tensors]


def gradients(
    tensors: list[torch.Tensor], lse: torch.Tensor, *, is_causal: bool, has_sums: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of queries (where there are sums), keys and values, and the sums over outputs."""
    q, k, v, out, d_out = tensors
    (heads, num_queries, width), num_keys = q.shape, k.size(1)
    padded = lse.size(1)
    delta = torch.empty_like(lse)
    d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    sums = d_q
    if has_sums:
        sums = torch.empty(heads, padded, width, dtype=torch.float32, device=q.device)
    rows = triton.cdiv(padded, 32), heads
    prepare_kernel[rows](out, d_out, delta, sums, num_queries, padded, has_sums, 32, width)
    is_wide = width == 256
    queries, keys = [1, QUERIES[width], width], [1, ROWS if is_wide else 2 * ROWS, width]
    arguments = [
        descriptor(q, queries),
        descriptor(k, keys),
        descriptor(v, keys),
        descriptor(d_out, queries),
        vector_descriptor(lse, QUERIES[width]),
        vector_descriptor(delta, QUERIES[width]),
        descriptor(sums, [1, QUERIES[width], width // 2]) if has_sums and not is_wide else sums,
        d_k,
        d_v,
        num_queries,
        num_keys,
        math.log2(math.e) / math.sqrt(width),
        1 / math.sqrt(width),
        is_causal,
        has_sums,
    ]
    grid = triton.cdiv(num_keys, keys[1]), heads
    if is_wide:
        wide_kernel[grid](*arguments, width, num_warps=4, maxnreg=168)
    else:
        narrow_kernel[grid](
            *arguments, width == 128, QUERIES[width], width, num_warps=4, maxnreg=168
        )
    if has_sums:
        scale = 1 / math.sqrt(width)
        piece = PIECE if is_wide else 0
        finish_kernel[rows](sums, d_q, num_queries, padded, scale, 32, width, piece)
    return d_q, d_k, d_v, delta


def attention_backward(
    tensors: tuple[torch.Tensor, ...], lse: torch.Tensor, *, is_causal: bool = False
) -> list[torch.Tensor]:
    """Gradients of queries, keys and values from those, the output and its gradient.

    The log-sum-exp is the one `warp_roles_attention.attention_with_lse` returns.
    """
    found = gradients(flattened(*tensors), lse, is_causal=is_causal, has_sums=True)[:3]
    return [gradient.reshape(like.shape) for gradient, like in zip(found, tensors)]


def repeatable_attention_backward(
    tensors: tuple[torch.Tensor, ...], lse: torch.Tensor, *, is_causal: bool = False
) -> list[torch.Tensor]:
    """The same without sums in memory: seven products instead of five, the same bits each time."""
    flat = flattened(*tensors)
    q, k, v, _out, d_out = flat
    width, num_keys = q.size(-1), k.size(1)
    d_q, d_k, d_v, delta = gradients(flat, lse, is_causal=is_causal, has_sums=False)
    is_wide = width == 256
    keys = [1, 64 if is_wide else 128, width]
    mine = [1, ROWS, width]
    query_kernel[triton.cdiv(q.size(1), 2 * ROWS), q.size(0)](
        descriptor(q, mine),
        descriptor(k, keys),
        descriptor(v, keys),
        descriptor(d_out, mine),
        descriptor(d_q, mine),
        lse,
        delta,
        num_keys,
        lse.size(1),
        math.log2(math.e) / math.sqrt(width),
        1 / math.sqrt(width),
        is_causal,
        keys[1],
        1 if is_wide else 2,
        width,
        num_warps=4,
        maxnreg=168,
    )
    return [gradient.reshape(like.shape) for gradient, like in zip((d_q, d_k, d_v), tensors)]
