"""Linear attention with a decay for each channel of the keys, one position after the other.

    state_t = diag(exp(g_t)) state_{t-1} + k_t v_t^T

or, where rates `beta` are given, with the delta rule: what the decayed state already holds for the
key is taken out of the value first. Each program carries the state of one head and a slice of its
value columns in registers; there is no chunk in which decays of many steps would overflow.
"""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel(static_shapes=True)
def channel_decay(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor | None = None,
) -> torch.Tensor:
    """Outputs `[rows, length, dv]`; `g` is like `k`, `beta` is `[rows, length]`."""
    rows, length, dk = q.size()
    dk = hl.specialize(dk)
    dv = v.size(2)
    dtype = torch.promote_types(q.dtype, torch.float32)
    out = torch.empty([rows, length, dv], dtype=v.dtype, device=v.device)
    for tile_r, tile_v in hl.tile([rows, dv], block_size=[1, None]):
        row = tile_r.begin
        state = hl.zeros([dk, tile_v], dtype=dtype)
        for t in hl.grid(length):
            key = k[row, t, :].to(dtype)
            value = v[row, t, tile_v].to(dtype)
            state = state * torch.exp(g[row, t, :].to(dtype))[:, None]
            if beta is not None:
                known = (key[:, None] * state).sum(0)
                value = (value - known) * beta[row, t].to(dtype)
            state = state + key[:, None] * value[None, :]
            result = (q[row, t, :].to(dtype)[:, None] * state).sum(0)
            out[row, t, tile_v] = result.to(v.dtype)
    return out


@helion.kernel(static_shapes=True)
def transposed_channel_decay(
    x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, g: torch.Tensor
) -> torch.Tensor:
    """``sum over s <= t of exp(G_t - G_s) (x_t . y_s) z_s``, the decay in the channels of ``z``."""
    rows, length, d = z.size()
    width = hl.specialize(x.size(2))
    dtype = torch.promote_types(x.dtype, torch.float32)
    out = torch.empty([rows, length, d], dtype=z.dtype, device=z.device)
    for tile_r, tile_d in hl.tile([rows, d], block_size=[1, None]):
        row = tile_r.begin
        state = hl.zeros([width, tile_d], dtype=dtype)
        for t in hl.grid(length):
            state = state * torch.exp(g[row, t, tile_d].to(dtype))[None, :]
            added = y[row, t, :].to(dtype)[:, None] * z[row, t, tile_d].to(dtype)[None, :]
            state = state + added
            result = (x[row, t, :].to(dtype)[:, None] * state).sum(0)
            out[row, t, tile_d] = result.to(z.dtype)
    return out


class ChannelDecay(torch.autograd.Function):
    """Gated linear attention, differentiable in queries, keys, values and log decays."""

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor
    ) -> torch.Tensor:
        """One kernel."""
        ctx.save_for_backward(q, k, v, g)
        return channel_decay(q, k, v, g)

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Three sums of the same form, two of them backwards in time."""
        q, k, v, g = ctx.saved_tensors
        grad_q = transposed_channel_decay(grad_out, v, k, g)
        back = torch.zeros_like(g)
        back[:, 1:] = g.flip(1)[:, :-1]
        q_back, k_back, v_back, grad_back = (x.flip(1) for x in (q, k, v, grad_out))
        grad_k = transposed_channel_decay(v_back, grad_back, q_back, back).flip(1)
        grad_v = channel_decay(k_back, q_back, grad_back, back).flip(1)
        along = q * grad_q - k * grad_k
        return grad_q, grad_k, grad_v, along.flip(1).cumsum(1).flip(1)


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor | None = None,
) -> torch.Tensor:
    """The recurrence in fp64."""
    queries, keys, values, decay = q.double(), k.double(), v.double(), g.double().exp()
    state = torch.zeros(q.size(0), q.size(2), v.size(2), dtype=torch.double, device=q.device)
    out: list[torch.Tensor] = []
    for t in range(q.size(1)):
        state = state * decay[:, t, :, None]
        value = values[:, t]
        if beta is not None:
            known = torch.einsum("rk,rkv->rv", keys[:, t], state)
            value = (value - known) * beta.double()[:, t, None]
        state = state + keys[:, t, :, None] * value[:, None, :]
        out.append(torch.einsum("rk,rkv->rv", queries[:, t], state))
    return torch.stack(out, 1) if out else values.new_empty(values.shape)


def reference_transposed(
    x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, g: torch.Tensor
) -> torch.Tensor:
    """The sum over all pairs of positions, in fp64."""
    logs = g.double().cumsum(1)
    passed = (logs[:, :, None, :] - logs[:, None, :, :]).exp()
    weights = (x.double() @ y.double().transpose(1, 2)).tril()
    return torch.einsum("rts,rtsd,rsd->rtd", weights, passed, z.double())
