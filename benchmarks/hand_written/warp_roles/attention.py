"""Attention with warp roles in Gluon, for Hopper: one warp copies, groups of four warps compute.

Keys are walked backwards, so that the tiles at the diagonal and at the end, the only ones that are
masked, come first. Each group owns 64 queries; what one group does between its products runs while
the products of another are in flight. Programs are persistent where the queries fit twice.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from benchmarks.hand_written.warp_roles.primitives import ROWS, barriers, descriptor, wait_for

PAD = 128
"""The log-sum-exp of a head is stored with infinity up to a multiple of this many queries."""


class Tiling(NamedTuple):
    """One choice of blocks and buffers."""

    groups: int
    keys: int
    stages: int
    query_buffers: int
    is_pinned: bool = False


TILINGS = {
    (64, False): Tiling(groups=3, keys=128, stages=3, query_buffers=2),
    (64, True): Tiling(groups=2, keys=128, stages=3, query_buffers=2, is_pinned=True),
    (128, False): Tiling(groups=2, keys=128, stages=2, query_buffers=2),
    (128, True): Tiling(groups=2, keys=128, stages=2, query_buffers=2, is_pinned=True),
    (256, False): Tiling(groups=2, keys=64, stages=2, query_buffers=1),
    (256, True): Tiling(groups=2, keys=64, stages=2, query_buffers=1),
}
"""By width of the head and whether queries see only what came before."""


@gluon.jit
def place(
    index,
    shape,
    IS_CAUSAL: gl.constexpr,
    GROUPS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    TOGETHER: gl.constexpr,
):
    """Head, first query and number of key tiles of a piece of work: some heads, long ones first."""
    heads, num_queries, num_keys = shape
    blocks = gl.cdiv(num_queries, GROUPS * 64)
    first_head = index // (blocks * TOGETHER) * TOGETHER
    size = gl.minimum(heads - first_head, TOGETHER)
    rest = index % (blocks * TOGETHER)
    block = rest // size
    end = num_keys
    if IS_CAUSAL:
        block = blocks - 1 - block
        end = gl.minimum(end, (block + 1) * (GROUPS * 64))
    return first_head + rest % size, block * (GROUPS * 64), gl.cdiv(end, BLOCK_N)


@gluon.jit
def load_role(
    tensors,
    buffers,
    bars,
    shape,
    IS_CAUSAL: gl.constexpr,
    GROUPS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    QUERY_BUFFERS: gl.constexpr,
    TOGETHER: gl.constexpr,
):
    """One warp: copies queries, keys and values as buffers become free."""
    q, k, v, _out = tensors
    q_buf, k_buf, v_buf, _pins = buffers
    q_full, q_empty, k_full, k_empty, v_full, v_empty = bars
    pieces = gl.cdiv(shape[1], GROUPS * 64) * shape[0]
    step = 0
    for index in range(gl.program_id(0), pieces, gl.num_programs(0)):
        piece = index // gl.num_programs(0)
        head, query, tiles = place(index, shape, IS_CAUSAL, GROUPS, BLOCK_N, TOGETHER)
        for j in range(tiles):
            key = (tiles - 1 - j) * BLOCK_N
            stage = step % STAGES
            wait_for(k_empty, step - STAGES, STAGES)
            mbarrier.expect(k_full.index(stage), k.block_type.nbytes)
            tma.async_copy_global_to_shared(
                k, [head, key, 0], k_full.index(stage), k_buf.index(stage)
            )
            if j == 0:
                for group in gl.static_range(GROUPS):
                    mine = piece % QUERY_BUFFERS * GROUPS + group
                    mbarrier.wait(q_empty.index(mine), ((piece // QUERY_BUFFERS) & 1) ^ 1)
                    mbarrier.expect(q_full.index(mine), q.block_type.nbytes)
                    tma.async_copy_global_to_shared(
                        q, [head, query + group * 64, 0], q_full.index(mine), q_buf.index(mine)
                    )
            wait_for(v_empty, step - STAGES, STAGES)
            mbarrier.expect(v_full.index(stage), v.block_type.nbytes)
            tma.async_copy_global_to_shared(
                v, [head, key, 0], v_full.index(stage), v_buf.index(stage)
            )
            step += 1


@gluon.jit
def hide(scores, first_query, first_key, num_keys, IS_CAUSAL: gl.constexpr):
    """Scaled scores without the keys a query does not see; finite, so that no row becomes NaN."""
    layout: gl.constexpr = scores.type.layout
    key = first_key + gl.arange(0, scores.shape[1], gl.SliceLayout(0, layout))[None, :]
    is_visible = key < num_keys
    if IS_CAUSAL:
        query = first_query + gl.arange(0, scores.shape[0], gl.SliceLayout(1, layout))
        is_visible = is_visible & (query[:, None] >= key)
    return gl.where(is_visible, scores, -1.0e30)


@gluon.jit
def soften(
    scores,
    peak,
    total,
    scale,
    first_query,
    first_key,
    num_keys,
    IS_CAUSAL: gl.constexpr,
    IS_MASKED: gl.constexpr,
):
    """One step of the softmax: weights of a tile, the new peak and total, what to shrink by."""
    if IS_MASKED:
        scores = hide(scores * scale, first_query, first_key, num_keys, IS_CAUSAL)
        new_peak = gl.maximum(peak, gl.max(scores, 1))
        weights = gl.exp2(scores - new_peak[:, None])
    else:
        new_peak = gl.maximum(peak, gl.max(scores, 1) * scale)
        weights = gl.exp2(scores * scale - new_peak[:, None])
    shrink = gl.exp2(peak - new_peak)
    return weights, new_peak, total * shrink + gl.sum(weights, 1), shrink


@gluon.jit
def skip_tiles(bars, step, number, STAGES: gl.constexpr):
    """Hand back tiles that no query of the group sees."""
    _q_full, _q_empty, k_full, k_empty, v_full, v_empty = bars
    for j in range(number):
        stage = (step + j) % STAGES
        wait_for(k_full, step + j, STAGES)
        mbarrier.arrive(k_empty.index(stage), count=1)
        wait_for(v_full, step + j, STAGES)
        mbarrier.arrive(v_empty.index(stage), count=1)


@gluon.jit
def attend(
    group: gl.constexpr,
    queries,
    buffers,
    bars,
    step,
    tiles,
    first_query,
    num_keys,
    scale,
    IS_CAUSAL: gl.constexpr,
    IS_PARTIAL: gl.constexpr,
    IS_PINNED: gl.constexpr,
    BLOCK_N: gl.constexpr,
    WIDTH: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Walk the tiles of keys: scores of one and output of the one before are in flight at once."""
    _q_buf, k_buf, v_buf, pins = buffers
    _q_full, _q_empty, k_full, k_empty, v_full, v_empty = bars
    score_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    out_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, out_layout, 2)
    zeros = gl.zeros([64, BLOCK_N], gl.float32, score_layout)
    acc = gl.zeros([64, WIDTH], gl.float32, out_layout)
    peak = gl.full([64], -1.0e30, gl.float32, gl.SliceLayout(1, score_layout))
    total = gl.zeros([64], gl.float32, gl.SliceLayout(1, score_layout))
    masked = 1
    if IS_CAUSAL:
        masked = gl.maximum(1, tiles - gl.minimum(first_query + 1, num_keys) // BLOCK_N)
    wait_for(k_full, step, STAGES)
    first_keys = k_buf.index(step % STAGES).reshape([BLOCK_N, WIDTH]).permute((1, 0))
    first_product = warpgroup_mma(queries, first_keys, zeros, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, [first_product])
    mbarrier.arrive(k_empty.index(step % STAGES), count=1)
    last_key = (tiles - 1) * BLOCK_N
    weights, peak, total, shrink = soften(
        scores,
        peak,
        total,
        scale,
        first_query,
        last_key,
        num_keys,
        IS_CAUSAL,
        IS_CAUSAL or IS_PARTIAL,
    )
    ready = gl.convert_layout(weights.to(gl.bfloat16), operand)
    for IS_MASKED in gl.static_range(1, -1, -1):
        begin = 1 if IS_MASKED else masked
        end = masked if IS_MASKED else tiles
        for j in range(begin, end):
            now = (step + j) % STAGES
            before = (step + j - 1) % STAGES
            wait_for(k_full, step + j, STAGES)
            keys = k_buf.index(now).reshape([BLOCK_N, WIDTH]).permute((1, 0))
            product = warpgroup_mma(queries, keys, zeros, use_acc=False, is_async=True)
            wait_for(v_full, step + j - 1, STAGES)
            values = v_buf.index(before).reshape([BLOCK_N, WIDTH])
            output = warpgroup_mma(ready, values, acc, use_acc=True, is_async=True)
            scores = warpgroup_mma_wait(1, [product])
            if not IS_PINNED:
                mbarrier.arrive(k_empty.index(now), count=1)
            weights, peak, total, shrink = soften(
                scores,
                peak,
                total,
                scale,
                first_query,
                last_key - j * BLOCK_N,
                num_keys,
                IS_CAUSAL,
                IS_MASKED,
            )
            if IS_PINNED:
                # A store of every total and a barrier: ptxas moves the softmax past the wait
                # for the output otherwise.
                pins.index(group).store(total)
                mbarrier.arrive(k_empty.index(now), count=1)
                following = gl.convert_layout(weights.to(gl.bfloat16), operand)
                acc, ready = warpgroup_mma_wait(0, [output, following])
            else:
                acc = warpgroup_mma_wait(0, [output])
                ready = gl.convert_layout(weights.to(gl.bfloat16), operand)
            mbarrier.arrive(v_empty.index(before), count=1)
            acc = acc * gl.convert_layout(shrink, gl.SliceLayout(1, out_layout))[:, None]
    last = (step + tiles - 1) % STAGES
    wait_for(v_full, step + tiles - 1, STAGES)
    last_values = v_buf.index(last).reshape([BLOCK_N, WIDTH])
    acc = warpgroup_mma_wait(0, [warpgroup_mma(ready, last_values, acc, is_async=True)])
    mbarrier.arrive(v_empty.index(last), count=1)
    return acc, peak, total


@gluon.jit
def compute_role(
    group: gl.constexpr,
    tensors,
    lse,
    buffers,
    bars,
    shape,
    padded,
    scale,
    IS_CAUSAL: gl.constexpr,
    IS_PARTIAL: gl.constexpr,
    IS_PINNED: gl.constexpr,
    GROUPS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    WIDTH: gl.constexpr,
    STAGES: gl.constexpr,
    QUERY_BUFFERS: gl.constexpr,
    TOGETHER: gl.constexpr,
):
    """Four warps: 64 queries of each piece of work."""
    q_buf = buffers[0]
    q_full = bars[0]
    q_empty = bars[1]
    pieces = gl.cdiv(shape[1], GROUPS * 64) * shape[0]
    step = 0
    for index in range(gl.program_id(0), pieces, gl.num_programs(0)):
        piece = index // gl.num_programs(0)
        head, query, tiles = place(index, shape, IS_CAUSAL, GROUPS, BLOCK_N, TOGETHER)
        first_query = query + group * 64
        if IS_CAUSAL:
            unseen = tiles - gl.cdiv(gl.minimum(first_query + 64, shape[2]), BLOCK_N)
            skip_tiles(bars, step, unseen, STAGES)
            step += unseen
            tiles -= unseen
        mine = piece % QUERY_BUFFERS * GROUPS + group
        mbarrier.wait(q_full.index(mine), (piece // QUERY_BUFFERS) & 1)
        acc, peak, total = attend(
            group,
            q_buf.index(mine).reshape([64, WIDTH]),
            buffers,
            bars,
            step,
            tiles,
            first_query,
            shape[2],
            scale,
            IS_CAUSAL,
            IS_PARTIAL,
            IS_PINNED,
            BLOCK_N,
            WIDTH,
            STAGES,
        )
        row = first_query + gl.arange(0, 64, peak.type.layout)
        value = gl.where(row < shape[1], peak + gl.log2(total), float("inf"))
        gl.store(lse + head.to(gl.int64) * padded + row, value, mask=row < padded)
        whole = gl.convert_layout(total, gl.SliceLayout(1, acc.type.layout))
        # The queries are done with: their buffer takes the output.
        q_buf.index(mine).reshape([64, WIDTH]).store((acc / whole[:, None]).to(gl.bfloat16))
        fence_async_shared()
        tma.async_copy_shared_to_global(tensors[3], [head, first_query, 0], q_buf.index(mine))
        tma.store_wait(0)
        mbarrier.arrive(q_empty.index(mine), count=1)
        step += tiles


@gluon.jit
def attention_kernel(
    q,
    k,
    v,
    out,
    lse,
    heads,
    num_queries,
    num_keys,
    padded,
    scale,
    IS_CAUSAL: gl.constexpr,
    IS_PARTIAL: gl.constexpr,
    IS_PINNED: gl.constexpr,
    GROUPS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    WIDTH: gl.constexpr,
    STAGES: gl.constexpr,
    QUERY_BUFFERS: gl.constexpr,
    TOGETHER: gl.constexpr,
):
    queries: gl.constexpr = QUERY_BUFFERS * GROUPS
    q_buf = gl.allocate_shared_memory(gl.bfloat16, [queries, 1, 64, WIDTH], q.layout)
    k_buf = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 1, BLOCK_N, WIDTH], k.layout)
    v_buf = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 1, BLOCK_N, WIDTH], v.layout)
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    pins = gl.allocate_shared_memory(gl.float32, [GROUPS, 64], plain)
    bars = (
        barriers(queries, 1),
        barriers(queries, 1),
        barriers(STAGES, 1),
        barriers(STAGES, GROUPS),
        barriers(STAGES, 1),
        barriers(STAGES, GROUPS),
    )
    buffers = (q_buf, k_buf, v_buf, pins)
    tensors = (q, k, v, out)
    shape = (heads, num_queries, num_keys)
    # Constants stay constants only in a tuple that is written where it is used.
    if GROUPS == 2:
        gl.warp_specialize(
            [
                (
                    compute_role,
                    (
                        0,
                        tensors,
                        lse,
                        buffers,
                        bars,
                        shape,
                        padded,
                        scale,
                        IS_CAUSAL,
                        IS_PARTIAL,
                        IS_PINNED,
                        GROUPS,
                        BLOCK_N,
                        WIDTH,
                        STAGES,
                        QUERY_BUFFERS,
                        TOGETHER,
                    ),
                ),
                (
                    compute_role,
                    (
                        1,
                        tensors,
                        lse,
                        buffers,
                        bars,
                        shape,
                        padded,
                        scale,
                        IS_CAUSAL,
                        IS_PARTIAL,
                        IS_PINNED,
                        GROUPS,
                        BLOCK_N,
                        WIDTH,
                        STAGES,
                        QUERY_BUFFERS,
                        TOGETHER,
                    ),
                ),
                (
                    load_role,
                    (
                        tensors,
                        buffers,
                        bars,
                        shape,
                        IS_CAUSAL,
                        GROUPS,
                        BLOCK_N,
                        STAGES,
                        QUERY_BUFFERS,
                        TOGETHER,
                    ),
                ),
            ],
            [4, 1],
            [240, 24],
        )
    else:
        gl.warp_specialize(
            [
                (
                    compute_role,
                    (
                        0,
                        tensors,
                        lse,
                        buffers,
                        bars,
                        shape,
                        padded,
                        scale,
                        IS_CAUSAL,
                        IS_PARTIAL,
                        IS_PINNED,
                        GROUPS,
                        BLOCK_N,
                        WIDTH,
                        STAGES,
                        QUERY_BUFFERS,
                        TOGETHER,
                    ),
                ),
                (
                    compute_role,
                    (
                        1,
                        tensors,
                        lse,
                        buffers,
                        bars,
                        shape,
                        padded,
                        scale,
                        IS_CAUSAL,
                        IS_PARTIAL,
                        IS_PINNED,
                        GROUPS,
                        BLOCK_N,
                        WIDTH,
                        STAGES,
                        QUERY_BUFFERS,
                        TOGETHER,
                    ),
                ),
                (
                    compute_role,
                    (
                        2,
                        tensors,
                        lse,
                        buffers,
                        bars,
                        shape,
                        padded,
                        scale,
                        IS_CAUSAL,
                        IS_PARTIAL,
                        IS_PINNED,
                        GROUPS,
                        BLOCK_N,
                        WIDTH,
                        STAGES,
                        QUERY_BUFFERS,
                        TOGETHER,
                    ),
                ),
                (
                    load_role,
                    (
                        tensors,
                        buffers,
                        bars,
                        shape,
                        IS_CAUSAL,
                        GROUPS,
                        BLOCK_N,
                        STAGES,
                        QUERY_BUFFERS,
                        TOGETHER,
                    ),
                ),
            ],
            [4, 4, 1],
            [160, 160, 24],
        )


def heads_together(k: torch.Tensor, *, is_causal: bool) -> int:
    """Heads walked side by side: enough to even out their lengths, few enough for the L2 cache."""
    if not is_causal:
        return 1
    room = 2**25 // (2 * k.size(-2) * k.size(-1) * k.element_size())
    return 2 ** max(0, min(5, room.bit_length() - 1))


def attention_with_lse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, is_causal: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax attention of contiguous bf16 tensors, heads first; its log-sum-exp in base two."""
    width, num_queries, num_keys = q.size(-1), q.size(-2), k.size(-2)
    out = torch.empty_like(q)
    flat = [tensor.reshape(-1, tensor.size(-2), width) for tensor in (q, k, v, out)]
    heads = flat[0].size(0)
    padded = triton.cdiv(num_queries, PAD) * PAD
    lse = torch.empty(heads, padded, dtype=torch.float32, device=q.device)
    tiling = TILINGS[width, is_causal]
    blocks = ([1, ROWS, width], [1, tiling.keys, width], [1, tiling.keys, width], [1, ROWS, width])
    pieces = triton.cdiv(num_queries, tiling.groups * ROWS) * heads
    if tiling.query_buffers > 1:
        processors = torch.cuda.get_device_properties(q.device).multi_processor_count
        pieces = min(pieces, processors)
    attention_kernel[(pieces,)](
        *(descriptor(tensor, block) for tensor, block in zip(flat, blocks)),
        lse,
        heads,
        num_queries,
        num_keys,
        padded,
        math.log2(math.e) / math.sqrt(width),
        IS_CAUSAL=is_causal,
        IS_PARTIAL=num_keys % tiling.keys != 0,
        IS_PINNED=tiling.is_pinned,
        GROUPS=tiling.groups,
        BLOCK_N=tiling.keys,
        WIDTH=width,
        STAGES=tiling.stages,
        QUERY_BUFFERS=tiling.query_buffers,
        TOGETHER=heads_together(k, is_causal=is_causal),
        num_warps=4,
        maxnreg=168 if tiling.groups == 2 else 128,
    )
    return out, lse


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, is_causal: bool = False
) -> torch.Tensor:
    """Softmax attention of contiguous bf16 queries, keys and values, heads first."""
    return attention_with_lse(q, k, v, is_causal=is_causal)[0]


def causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The same, each query with the keys up to its own position."""
    return attention(q, k, v, is_causal=True)
