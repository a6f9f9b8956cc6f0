"""Gradients of keys and values, heads of 256: one group owns each of the two.

The weights pass from the group of the values to that of the keys; both add their half of the
gradient of the queries to sums in memory, in the order of their accumulators.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from benchmarks.hand_written.warp_roles.primitives import (
    barriers,
    hide_future,
    load_role,
    store_rows,
    wait_for,
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
