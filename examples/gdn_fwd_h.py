"""Gated delta net: the states at the start of each chunk, and the corrected values.

A program owns one head and a slice of its value columns and walks the chunks in order, the state
carried in registers. Each chunk first takes out what the state already predicts (`w` times the
state), then adds its own keys and values, decayed to the end of the chunk.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def gdn_fwd_h(
    k: torch.Tensor, w: torch.Tensor, u: torch.Tensor, g: torch.Tensor, chunk: hl.constexpr
) -> tuple[torch.Tensor, torch.Tensor]:
    """States `[batch, chunk, head, dk, dv]` and corrected values `[batch, length, head, dv]`.

    Args:
        k: keys `[batch, length, head, dk]`.
        w: keys of the correction, like `k`.
        u: values `[batch, length, head, dv]`.
        g: sums of log gates from the start of each chunk, `[batch, length, head]`.
        chunk: positions in a chunk, a power of two.
    """
    batch, length, heads, dk = k.size()
    dk = hl.specialize(dk)
    dv = u.size(-1)
    chunks = helion.cdiv(length, chunk)
    states = torch.empty([batch, chunks, heads, dk, dv], dtype=k.dtype, device=k.device)
    corrected = torch.empty_like(u)
    for tile_b, tile_h, tile_v in hl.tile([batch, heads, dv], block_size=[1, 1, None]):
        i, head = tile_b.begin, tile_h.begin
        state = hl.zeros([dk, tile_v], dtype=torch.float32)
        for tile_t in hl.tile(length, block_size=chunk):
            states[i, tile_t.id, head, :, tile_v] = state.to(k.dtype)
            predicted = hl.dot(w[i, tile_t, head, :], state.to(k.dtype))
            rest = u[i, tile_t, head, tile_v].to(torch.float32) - predicted
            corrected[i, tile_t, head, tile_v] = rest.to(u.dtype)
            gates = g[i, tile_t, head].to(torch.float32)
            last = g[i, tile_t.end - 1, head].to(torch.float32)
            decayed = rest * torch.exp(last - gates)[:, None]
            keys = k[i, tile_t, head, :]
            state = hl.dot(keys.T, decayed.to(k.dtype), acc=state * torch.exp(last))
    return states, corrected


def reference(
    k: torch.Tensor, w: torch.Tensor, u: torch.Tensor, g: torch.Tensor, chunk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, length, heads, dk = k.size()
    keys, correction, values, gates = (x.double().transpose(1, 2) for x in (k, w, u, g))
    state = torch.zeros(batch, heads, dk, u.size(-1), dtype=torch.double, device=k.device)
    states: list[torch.Tensor] = []
    corrected: list[torch.Tensor] = []
    for begin in range(0, length, chunk):
        now = slice(begin, min(begin + chunk, length))
        states.append(state)
        rest = values[:, :, now] - correction[:, :, now] @ state
        corrected.append(rest)
        last = gates[:, :, now][..., -1:]
        decayed = rest * torch.exp(last - gates[:, :, now])[..., None]
        state = state * torch.exp(last)[..., None] + keys[:, :, now].transpose(-1, -2) @ decayed
    return torch.stack(states, 1), torch.cat(corrected, 2).transpose(1, 2)


def random_inputs(
    sizes: tuple[int, int, int], chunk: int, widths: tuple[int, int], dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """Keys, correction keys, values and gates; ``sizes`` are batch, heads and length."""
    (batch, heads, length), (dk, dv) = sizes, widths
    generator = torch.Generator().manual_seed(0)
    k, w = (
        torch.nn.functional.normalize(
            torch.randn(batch, length, heads, dk, generator=generator), dim=-1
        )
        for _ in range(2)
    )
    u = torch.randn(batch, length, heads, dv, generator=generator)
    steps = -torch.rand(batch, length, heads, generator=generator) * 0.1
    sums = [steps[:, i : i + chunk].cumsum(1) for i in range(0, length, chunk)]
    gates = torch.cat(sums, 1) if sums else steps
    return k.to(dtype), (w * 0.2).to(dtype), u.to(dtype), gates


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes, chunk, widths = (
        ((8, 80, 4096), 64, (128, 128)) if device == "cuda" else ((1, 4, 200), 32, (32, 48))
    )
    inputs = random_inputs(sizes, chunk, widths, torch.float32)
    args = (*(x.to(device) for x in inputs), chunk)
    # fp32 products run in tf32 on a GPU, whose mantissa is fp16's; errors pass from chunk to chunk.
    rounded = [torch.float16] * 4
    errors = [
        check_against(result, exact, reduction_length=sizes[2], intermediate=rounded).relative_norm
        for result, exact in zip(gdn_fwd_h(*args), reference(*args))
    ]
    print(f"gdn_fwd_h: relative error states {errors[0]:.1e}, values {errors[1]:.1e}")


if __name__ == "__main__":
    main()
