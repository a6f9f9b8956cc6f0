"""Mamba-2: the outputs of each chunk, from the state that enters it and from its own inputs.

Two products share one accumulator: states times output projections, and the causal matrix of the
chunk times its inputs. The loop over the chunk ends at the tile's own diagonal, a bound made of
`tile.id` and the block size.
"""

from __future__ import annotations

import math

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.mamba2_chunk_state import random_inputs
from tilesmith.numerics.compare import check_against

LOG2_E = math.log2(math.e)


@helion.kernel(static_shapes=True)
def mamba2_chunk_scan(
    cb: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    decay: torch.Tensor,
    c: torch.Tensor,
    states: torch.Tensor,
    d: torch.Tensor,
) -> torch.Tensor:
    """Outputs `[batch, length, head, p]`.

    Args:
        cb: products of output and input projections `[batch, chunk, group, position, position]`.
        x: inputs `[batch, length, head, p]`.
        dt: step sizes `[batch, head, chunk, position]`.
        decay: sums of log decays from the chunk's start, like `dt`.
        c: output projections `[batch, length, group, n]`.
        states: the state entering each chunk `[batch, chunk, head, p, n]`.
        d: how much of its input each head adds to its output.
    """
    batch, length, num_heads, p = x.size()
    groups, n = c.size(2), c.size(3)
    chunks, chunk = dt.size(2), dt.size(3)
    heads_per_group = num_heads // groups
    block_m = hl.register_block_size(chunk)
    out = torch.empty_like(x)
    for tile_b, tile_h, tile_c, tile_m, tile_p in hl.tile(
        [batch, num_heads, chunks, chunk, p], block_size=[1, 1, 1, block_m, None]
    ):
        i, head, now = tile_b.begin, tile_h.begin, tile_c.begin
        group = head // heads_per_group
        row = now * chunk + tile_m.index
        is_inside = (row < length)[:, None]
        decayed = decay[i, head, now, tile_m].to(torch.float32)
        acc = hl.zeros([tile_m, tile_p], dtype=torch.float32)
        for tile_n in hl.tile(n):
            outward = hl.load(c, [i, row, group, tile_n], extra_mask=is_inside)
            acc = hl.dot(outward, states[i, now, head, tile_p, tile_n].T, acc=acc)
        acc = acc * torch.exp2(decayed * LOG2_E)[:, None]
        for tile_k in hl.tile((tile_m.id + 1) * block_m):
            column = now * chunk + tile_k.index
            is_known = tile_k.index < chunk
            passed = (
                decayed[:, None]
                - hl.load(decay, [i, head, now, tile_k], extra_mask=is_known).to(torch.float32)[
                    None, :
                ]
            )
            steps = hl.load(dt, [i, head, now, tile_k], extra_mask=is_known).to(torch.float32)
            weights = hl.load(cb, [i, now, group, tile_m, tile_k], extra_mask=is_known[None, :]).to(
                torch.float32
            )
            weights = weights * torch.exp2(passed * LOG2_E) * steps[None, :]
            is_past = tile_m.index[:, None] >= tile_k.index[None, :]
            weights = torch.where(is_past, weights, 0.0)
            inputs = hl.load(
                x,
                [i, column, head, tile_p],
                extra_mask=((column < length) & is_known)[:, None],
            )
            acc = hl.dot(weights.to(x.dtype), inputs, acc=acc)
        own = hl.load(x, [i, row, head, tile_p], extra_mask=is_inside).to(torch.float32)
        acc = acc + own * d[head].to(torch.float32)
        hl.store(out, [i, row, head, tile_p], acc.to(x.dtype), extra_mask=is_inside)
    return out


def reference(
    cb: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    decay: torch.Tensor,
    c: torch.Tensor,
    states: torch.Tensor,
    d: torch.Tensor,
) -> torch.Tensor:
    batch, length, num_heads, p = x.size()
    chunks, chunk = dt.size(2), dt.size(3)
    padding = (0, 0, 0, 0, 0, chunks * chunk - length)
    repeats = num_heads // c.size(2)
    inputs = torch.nn.functional.pad(x.double(), padding)
    inputs = inputs.view(batch, chunks, chunk, num_heads, p)
    outward = torch.nn.functional.pad(c.double().repeat_interleave(repeats, 2), padding)
    outward = outward.view(batch, chunks, chunk, num_heads, -1)
    logs = decay.double()
    entering = torch.einsum("bclhn,bchpn,bhcl->bclhp", outward, states.double(), logs.exp())
    passed = (logs[..., :, None] - logs[..., None, :]).exp().tril()
    weights = cb.double().repeat_interleave(repeats, 2).permute(0, 2, 1, 3, 4) * passed
    weights = weights * dt.double()[..., None, :]
    own = torch.einsum("bhclk,bckhp->bclhp", weights, inputs)
    out = entering + own + inputs * d.double()[:, None]
    return out.reshape(batch, chunks * chunk, num_heads, p)[:, :length]


def random_scan_inputs(
    sizes: tuple[int, int, int, int], chunk: int, widths: tuple[int, int], dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """The kernel's arguments for a random model; sizes are those of ``random_inputs``."""
    (batch, heads, groups, _), (p, n) = sizes, widths
    c, x, steps, decay = random_inputs(sizes, chunk, widths, dtype)
    chunks = steps.size(2)
    generator = torch.Generator().manual_seed(1)
    cb = torch.randn(batch, chunks, groups, chunk, chunk, generator=generator).to(dtype)
    states = torch.randn(batch, chunks, heads, p, n, generator=generator).to(dtype)
    return cb, x, steps, decay, c, states, torch.randn(heads, generator=generator)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes, chunk, widths = (
        ((8, 80, 1, 4096), 256, (64, 128)) if device == "cuda" else ((1, 4, 2, 150), 64, (32, 16))
    )
    args = tuple(x.to(device) for x in random_scan_inputs(sizes, chunk, widths, torch.bfloat16))
    # The weights are rounded before the product.
    report = check_against(
        mamba2_chunk_scan(*args),
        reference(*args),
        reduction_length=chunk,
        intermediate=torch.bfloat16,
    )
    print(f"mamba2_chunk_scan: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
