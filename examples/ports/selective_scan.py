"""Mamba's selective scan: a linear recurrence with coefficients that depend on the input.

    state_t = exp(delta_t A) state_{t-1} + delta_t B_t u_t      out_t = C_t state_t + D u_t

Pairs of a factor and an addend compose associatively, so a tile of positions is one scan of pairs;
the state is carried from tile to tile.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


def compose(
    left: tuple[torch.Tensor, torch.Tensor], right: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """First ``left``, then ``right``, where a pair stands for `factor * state + addend`."""
    return left[0] * right[0], left[1] * right[0] + right[1]


@helion.kernel
def selective_scan(
    u: torch.Tensor,
    delta: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    d: torch.Tensor,
) -> torch.Tensor:
    """Outputs like `u` `[batch, channel, length]`.

    Args:
        u: the inputs.
        delta: step sizes before softplus, like the inputs.
        a: rates of decay, negative, `[channel, state]`.
        b: how inputs enter the state, `[batch, state, length]`.
        c: how states become outputs, like `b`.
        d: the share of the input that passes by, `[channel]`.
    """
    batch, channels, length = u.size()
    width = hl.specialize(a.size(1))
    out = torch.empty_like(u)
    for tile_b, tile_c in hl.tile([batch, channels], block_size=[1, None]):
        i = tile_b.begin
        state = hl.zeros([tile_c, width], dtype=torch.float32)
        rates = a[tile_c, :].to(torch.float32)
        for tile_t in hl.tile(length):
            values = u[i, tile_c, tile_t].to(torch.float32)
            steps = torch.nn.functional.softplus(delta[i, tile_c, tile_t].to(torch.float32))
            factors = torch.exp(steps[:, None, :] * rates[:, :, None])
            inward = b[i, :, tile_t].to(torch.float32)
            addends = (steps * values)[:, None, :] * inward[None, :, :]
            grown, added = hl.associative_scan(compose, (factors, addends), dim=2)
            states = grown * state[:, :, None] + added
            outward = c[i, :, tile_t].to(torch.float32)
            passed = values * d[tile_c].to(torch.float32)[:, None]
            out[i, tile_c, tile_t] = ((states * outward[None, :, :]).sum(1) + passed).to(out.dtype)
            is_last = (tile_t.index == tile_t.end - 1)[None, None, :]
            state = torch.where(is_last, states, 0.0).sum(-1)
    return out


def reference(
    u: torch.Tensor,
    delta: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    d: torch.Tensor,
) -> torch.Tensor:
    values, steps = u.double(), torch.nn.functional.softplus(delta.double())
    state = torch.zeros(u.size(0), *a.shape, dtype=torch.double, device=u.device)
    outs: list[torch.Tensor] = []
    for t in range(u.size(2)):
        decay = torch.exp(steps[:, :, t, None] * a.double())
        entering = (steps * values)[:, :, t, None] * b.double()[:, None, :, t]
        state = decay * state + entering
        outs.append((state * c.double()[:, None, :, t]).sum(-1))
    return torch.stack(outs, -1) + values * d.double()[:, None]


def random_inputs(
    batch: int, channels: int, length: int, width: int, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """All arguments; the rates are those of a fresh model."""
    generator = torch.Generator().manual_seed(0)
    u, delta = (torch.randn(batch, channels, length, generator=generator) for _ in range(2))
    a = -torch.arange(1, width + 1).float().repeat(channels, 1)
    b, c = (torch.randn(batch, width, length, generator=generator) for _ in range(2))
    d = torch.randn(channels, generator=generator)
    return u.to(dtype), delta.to(dtype), a, b.to(dtype), c.to(dtype), d


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = (4, 2048, 2048, 16) if device == "cuda" else (2, 12, 100, 16)
    args = tuple(x.to(device) for x in random_inputs(*sizes, torch.float32))
    report = check_against(
        selective_scan(*args), reference(*args), reduction_length=sizes[2] * sizes[3]
    )
    print(f"selective_scan: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
