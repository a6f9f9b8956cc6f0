"""The delta rule in chunks: before a value is written, what its key already reads is taken out.

    state_t = exp(g_t) (I - beta_t k_t k_t^T) state_{t-1} + beta_t k_t v_t^T    out_t = q_t state_t

Within a chunk the corrections of all positions solve one triangular system. Its matrix is the
identity plus a nilpotent part `a`, so its inverse is the finite product `(I - a)(I + a^2)(I + a^4)`
and so on: a few small products in place of a solver.
"""

from __future__ import annotations

import math

import torch

import tilesmith as helion
import tilesmith.language as hl

LOG2_E = math.log2(math.e)
CHUNK = 32


@helion.kernel(static_shapes=True, dot_precision="ieee")
def delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    beta: torch.Tensor,
    g: torch.Tensor,
    chunk: hl.constexpr,
) -> torch.Tensor:
    """Outputs `[rows, length, dv]` of `[rows, length, d]` inputs; `beta` and `g` `[rows, length]`.

    A row is one head of one sequence. The chunk is a power of two of at least 16.
    """
    rows, length, dk = q.size()
    dk = hl.specialize(dk)
    dv = v.size(2)
    doublings = chunk.bit_length() - 2
    out = torch.empty([rows, length, dv], dtype=v.dtype, device=v.device)
    for tile_r, tile_v in hl.tile([rows, dv], block_size=[1, None]):
        row = tile_r.begin
        state = hl.zeros([dk, tile_v], dtype=torch.float32)
        for tile_t in hl.tile(length, block_size=chunk):
            queries = q[row, tile_t, :].to(torch.float32)
            keys = k[row, tile_t, :].to(torch.float32)
            values = v[row, tile_t, tile_v].to(torch.float32)
            rates = beta[row, tile_t].to(torch.float32)
            gates = torch.cumsum(g[row, tile_t].to(torch.float32), 0)
            passed = gates[:, None] - gates[None, :]
            is_past = tile_t.index[:, None] >= tile_t.index[None, :]
            is_before = tile_t.index[:, None] > tile_t.index[None, :]
            grown = torch.exp2(gates * LOG2_E)[:, None]

            between = torch.exp2(torch.where(is_before, passed, float("-inf")) * LOG2_E)
            a = hl.dot(keys, keys.T) * between * rates[:, None]
            inverse = torch.where(tile_t.index[:, None] == tile_t.index[None, :], 1.0, 0.0) - a
            power = a
            for _ in hl.static_range(doublings):
                power = hl.dot(power, power)
                inverse = hl.dot(inverse, power, acc=inverse)
            known = hl.dot(keys, state) * grown
            corrected = hl.dot(inverse, (values - known) * rates[:, None])

            within = torch.exp2(torch.where(is_past, passed, float("-inf")) * LOG2_E)
            weights = hl.dot(queries, keys.T) * within
            result = hl.dot(weights, corrected, acc=hl.dot(queries, state) * grown)
            out[row, tile_t, tile_v] = result.to(v.dtype)
            whole = g[row, tile_t].to(torch.float32).sum()
            decayed = keys * torch.exp2((whole - gates) * LOG2_E)[:, None]
            state = hl.dot(decayed.T, corrected, acc=state * torch.exp2(whole * LOG2_E))
    return out


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    beta: torch.Tensor,
    g: torch.Tensor,
    chunk: int = CHUNK,
) -> torch.Tensor:
    """One position after the other, in fp64."""
    queries, keys, values = q.double(), k.double(), v.double()
    rates, decay = beta.double(), g.double().exp()
    state = torch.zeros(q.size(0), q.size(2), v.size(2), dtype=torch.double, device=q.device)
    out: list[torch.Tensor] = []
    for t in range(q.size(1)):
        state = state * decay[:, t, None, None]
        known = torch.einsum("rk,rkv->rv", keys[:, t], state)
        change = (values[:, t] - known) * rates[:, t, None]
        state = state + keys[:, t, :, None] * change[:, None, :]
        out.append(torch.einsum("rk,rkv->rv", queries[:, t], state))
    return torch.stack(out, 1) if out else values.new_empty(values.shape)


def random_rows(
    rows: int, length: int, widths: tuple[int, int], device: str, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys of length one, values, and rates in (0, 1)."""
    generator = torch.Generator().manual_seed(0)
    dk, dv = widths
    q, k, v = (torch.randn(rows, length, d, generator=generator) for d in (dk, dk, dv))
    beta = torch.rand(rows, length, generator=generator)
    q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    return *(x.to(dtype).to(device) for x in (q, k, v)), beta.to(device)
