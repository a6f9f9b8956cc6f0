"""The gated delta rule, position by position, with a state that comes in and goes out.

This is what serves decoding and short prompts (fla's `fused_recurrent_gated_delta_rule`): a program
owns one value head and some of its columns, and carries the state `[dk, columns]` through the
sequence in registers.

    state = exp(g) state;   state += k (beta (v - k^T state))^T;   out = q^T state
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

Two = tuple[torch.Tensor, torch.Tensor]


@helion.kernel
def gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor | None = None,
) -> Two:
    """Outputs `[batch, length, value head, dv]` and the last state `[batch, value head, dk, dv]`.

    Args:
        q: queries `[batch, length, head, dk]`; they are normalised here.
        k: keys, like the queries.
        v: values `[batch, length, value head, dv]`; several value heads may share a head.
        g: log decays `[batch, length, value head]`.
        beta: rates, like the decays.
        initial_state: the state before the first position, zero when not given.
    """
    batch, length, heads, dk = q.size()
    value_heads, dv = v.size(2), v.size(3)
    dk = hl.specialize(dk)
    group = value_heads // heads
    scale = dk**-0.5
    out = torch.empty_like(v)
    last_state = torch.empty([batch, value_heads, dk, dv], dtype=torch.float32, device=v.device)
    for tile_b, tile_h, tile_v in hl.tile([batch, value_heads, dv], block_size=[1, 1, None]):
        i, value_head = tile_b.begin, tile_h.begin
        head = value_head // group
        if initial_state is not None:
            state = initial_state[i, value_head, :, tile_v].to(torch.float32)
        else:
            state = hl.zeros([dk, tile_v], dtype=torch.float32)
        for t in range(length):
            query = q[i, t, head, :].to(torch.float32)
            key = k[i, t, head, :].to(torch.float32)
            query = query * torch.rsqrt((query * query).sum() + 1e-6) * scale
            key = key * torch.rsqrt((key * key).sum() + 1e-6)
            state = state * torch.exp(g[i, t, value_head].to(torch.float32))
            known = (state * key[:, None]).sum(0)
            rest = v[i, t, value_head, tile_v].to(torch.float32) - known
            state = (
                state + key[:, None] * (rest * beta[i, t, value_head].to(torch.float32))[None, :]
            )
            out[i, t, value_head, tile_v] = (state * query[:, None]).sum(0).to(out.dtype)
        last_state[i, value_head, :, tile_v] = state
    return out, last_state


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor | None = None,
) -> Two:
    group = v.size(2) // q.size(2)
    queries, keys = (
        (
            x.double() * torch.rsqrt(x.double().square().sum(-1, keepdim=True) + 1e-6)
        ).repeat_interleave(group, 2)
        for x in (q, k)
    )
    values, decay, rates = v.double(), g.double().exp(), beta.double()
    state = torch.zeros(v.size(0), v.size(2), q.size(3), v.size(3), device=v.device).double()
    if initial_state is not None:
        state = initial_state.double()
    outs: list[torch.Tensor] = []
    for t in range(q.size(1)):
        state = state * decay[:, t, :, None, None]
        known = torch.einsum("bhk,bhkv->bhv", keys[:, t], state)
        change = (values[:, t] - known) * rates[:, t, :, None]
        state = state + keys[:, t, :, :, None] * change[:, :, None, :]
        outs.append(torch.einsum("bhk,bhkv->bhv", queries[:, t], state) * q.size(3) ** -0.5)
    return torch.stack(outs, 1), state


def random_inputs(
    batch: int, length: int, heads: tuple[int, int], widths: tuple[int, int], dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """Arguments without a state; ``heads`` of keys and values, ``widths`` dk and dv."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(batch, length, heads[0], widths[0], generator=generator) for _ in range(2))
    v = torch.randn(batch, length, heads[1], widths[1], generator=generator)
    g = torch.nn.functional.logsigmoid(
        torch.randn(batch, length, heads[1], generator=generator) + 2
    )
    beta = torch.rand(batch, length, heads[1], generator=generator)
    return q.to(dtype), k.to(dtype), v.to(dtype), g, beta


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, length = (8, 64) if device == "cuda" else (2, 21)
    inputs = random_inputs(batch, length, (4, 8), (128, 128), torch.bfloat16)
    args = tuple(x.to(device) for x in inputs)
    state = torch.randn(batch, 8, 128, 128, device=device)
    errors = [
        check_against(result, exact, reduction_length=128 * length).relative_norm
        for result, exact in zip(gated_delta_rule(*args, state), reference(*args, state))
    ]
    print(f"gated_delta_rule: relative error {errors[0]:.1e}, of the state {errors[1]:.1e}")


if __name__ == "__main__":
    main()
