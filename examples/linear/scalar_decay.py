"""Linear attention with one decay for each head and position: the engine of four models.

    state_t = exp(g_t) * state_{t-1} + k_t v_t^T        out_t = q_t state_t

Positions are taken in chunks: within a chunk the causal matrix of products, between chunks a state
carried in registers. Gradients are the same sum over other roles: that of q reads (grad, v, k), and
those of k and v run over the sequence backwards, so one kernel serves all four.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl

LOG2_E = math.log2(math.e)
CHUNK = 64


def chunk_step(
    inputs: Sequence[torch.Tensor], place: Sequence[Any], state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One chunk: its outputs, and the state after it."""
    q, k, v, g = inputs
    row, tile_t, tile_v = place
    queries, keys, values = q[row, tile_t, :], k[row, tile_t, :], v[row, tile_t, tile_v]
    decays = g[row, tile_t].to(state.dtype)
    gates = torch.cumsum(decays, 0)
    is_past = tile_t.index[:, None] >= tile_t.index[None, :]
    passed = torch.where(is_past, gates[:, None] - gates[None, :], float("-inf"))
    weights = hl.dot(queries, keys.T, out_dtype=state.dtype) * torch.exp2(passed * LOG2_E)
    entering = hl.dot(queries, state.to(q.dtype), out_dtype=state.dtype)
    grown = torch.exp2(gates * LOG2_E)[:, None]
    result = hl.dot(weights.to(v.dtype), values, acc=entering * grown)
    # The decay over the whole chunk, however many positions it has.
    whole = decays.sum()
    decayed = keys.to(state.dtype) * torch.exp2((whole - gates) * LOG2_E)[:, None]
    kept = state * torch.exp2(whole * LOG2_E)
    return result, hl.dot(decayed.to(k.dtype).T, values, acc=kept)


@helion.kernel(static_shapes=True)
def scalar_decay(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, chunk: hl.constexpr
) -> torch.Tensor:
    """Outputs `[rows, length, dv]` of `[rows, length, d]` inputs and log decays `[rows, length]`.

    A row is one head of one sequence.
    """
    rows, length, dk = q.size()
    dk = hl.specialize(dk)
    dv = v.size(2)
    dtype = torch.promote_types(q.dtype, torch.float32)
    out = torch.empty([rows, length, dv], dtype=v.dtype, device=v.device)
    for tile_r, tile_v in hl.tile([rows, dv], block_size=[1, None]):
        row = tile_r.begin
        state = hl.zeros([dk, tile_v], dtype=dtype)
        for tile_t in hl.tile(length, block_size=chunk):
            result, state = chunk_step((q, k, v, g), (row, tile_t, tile_v), state)
            out[row, tile_t, tile_v] = result.to(v.dtype)
    return out


@helion.kernel(static_shapes=True)
def scalar_decay_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    offsets: torch.Tensor,
    chunk: hl.constexpr,
) -> torch.Tensor:
    """The same for sequences of different lengths laid end to end.

    Inputs are `[heads, total length, d]`; sequence `i` is `offsets[i]` to `offsets[i + 1]`.
    """
    heads, total, dk = q.size()
    dk = hl.specialize(dk)
    dv = v.size(2)
    sequences = offsets.size(0) - 1
    dtype = torch.promote_types(q.dtype, torch.float32)
    out = torch.empty([heads, total, dv], dtype=v.dtype, device=v.device)
    for tile_s, tile_h, tile_v in hl.tile([sequences, heads, dv], block_size=[1, 1, None]):
        row = tile_h.begin
        begin, end = offsets[tile_s.begin], offsets[tile_s.begin + 1]
        state = hl.zeros([dk, tile_v], dtype=dtype)
        for tile_t in hl.tile(begin, end, block_size=chunk):
            result, state = chunk_step((q, k, v, g), (row, tile_t, tile_v), state)
            out[row, tile_t, tile_v] = result.to(v.dtype)
    return out


class ScalarDecay(torch.autograd.Function):
    """Linear attention of rows with log decays, differentiable in all four inputs."""

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor
    ) -> torch.Tensor:
        """One kernel."""
        ctx.save_for_backward(q, k, v, g)
        return scalar_decay(q, k, v, g, CHUNK)

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The same kernel three times, twice over the sequence backwards."""
        q, k, v, g = ctx.saved_tensors
        grad_q = scalar_decay(grad_out, v, k, g, CHUNK)
        # Backwards, the decay between two positions belongs to the later one of the pair.
        back = torch.zeros_like(g)
        back[:, 1:] = g.flip(1)[:, :-1]
        q_back, k_back, v_back, grad_back = (x.flip(1) for x in (q, k, v, grad_out))
        grad_k = scalar_decay(v_back, grad_back, q_back, back, CHUNK).flip(1)
        grad_v = scalar_decay(k_back, q_back, grad_back, back, CHUNK).flip(1)
        along = (q * grad_q).sum(-1) - (k * grad_k).sum(-1)
        return grad_q, grad_k, grad_v, along.flip(1).cumsum(1).flip(1).to(g.dtype)


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, chunk: int = CHUNK
) -> torch.Tensor:
    """One position after the other, in fp64."""
    queries, keys, values, decay = q.double(), k.double(), v.double(), g.double().exp()
    state = torch.zeros(q.size(0), q.size(2), v.size(2), dtype=torch.double, device=q.device)
    out: list[torch.Tensor] = []
    for t in range(q.size(1)):
        state = state * decay[:, t, None, None] + keys[:, t, :, None] * values[:, t, None, :]
        out.append(torch.einsum("rk,rkv->rv", queries[:, t], state))
    return torch.stack(out, 1) if out else values.new_empty(values.shape)


def reference_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    offsets: torch.Tensor,
    chunk: int = CHUNK,
) -> torch.Tensor:
    bounds = offsets.tolist()
    pieces = [reference(q[:, a:b], k[:, a:b], v[:, a:b], g[:, a:b]) for a, b in pairwise(bounds)]
    return torch.cat(pieces, 1)


def random_rows(
    rows: int, length: int, widths: tuple[int, int], device: str, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values; products of queries and keys are of the order of one."""
    generator = torch.Generator().manual_seed(0)
    dk, dv = widths
    q, k, v = (torch.randn(rows, length, d, generator=generator) for d in (dk, dk, dv))
    return (
        (q / dk**0.25).to(dtype).to(device),
        (k / dk**0.25).to(dtype).to(device),
        v.to(dtype).to(device),
    )
