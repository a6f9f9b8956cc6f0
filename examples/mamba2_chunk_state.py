"""Mamba-2: the state that each chunk of a sequence adds, before chunks are linked.

The state of a chunk is the sum over its positions of `x` times `b`, each decayed from its position
to the end of the chunk. Batch, head and chunk are tile axes of block size 1 used by their `begin`.
"""

from __future__ import annotations

import math

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

LOG2_E = math.log2(math.e)


@helion.kernel(static_shapes=True)
def mamba2_chunk_state(
    b: torch.Tensor, x: torch.Tensor, dt: torch.Tensor, decay: torch.Tensor
) -> torch.Tensor:
    """States `[batch, chunk, head, p, n]`.

    Args:
        b: input projections `[batch, length, group, n]`.
        x: inputs `[batch, length, head, p]`.
        dt: step sizes `[batch, head, chunk, position]`.
        decay: sums of log decays from the chunk's start, like `dt`.
    """
    batch, length, num_heads, p = x.size()
    groups, n = b.size(2), b.size(3)
    chunks, chunk = dt.size(2), dt.size(3)
    heads_per_group = num_heads // groups
    states = torch.empty([batch, chunks, num_heads, p, n], dtype=x.dtype, device=x.device)
    for tile_b, tile_h, tile_c, tile_p, tile_n in hl.tile(
        [batch, num_heads, chunks, p, n], block_size=[1, 1, 1, None, None]
    ):
        i, head, c = tile_b.begin, tile_h.begin, tile_c.begin
        last = decay[i, head, c, chunk - 1].to(torch.float32)
        acc = hl.zeros([tile_p, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(chunk):
            position = c * chunk + tile_k.index
            # The last chunk may be shorter than the others.
            is_inside = position < length
            to_end = torch.exp2((last - decay[i, head, c, tile_k].to(torch.float32)) * LOG2_E)
            weight = to_end * dt[i, head, c, tile_k].to(torch.float32)
            inputs = hl.load(x, [i, position, head, tile_p], extra_mask=is_inside[:, None])
            inward = hl.load(
                b, [i, position, head // heads_per_group, tile_n], extra_mask=is_inside[:, None]
            )
            scaled = (inputs.to(torch.float32) * weight[:, None]).to(x.dtype)
            acc = hl.dot(scaled.T, inward, acc=acc)
        states[i, c, head, tile_p, tile_n] = acc.to(x.dtype)
    return states


def reference(
    b: torch.Tensor, x: torch.Tensor, dt: torch.Tensor, decay: torch.Tensor
) -> torch.Tensor:
    batch, length, num_heads, p = x.size()
    chunks, chunk = dt.size(2), dt.size(3)
    padding = chunks * chunk - length
    inputs = torch.nn.functional.pad(x.double(), (0, 0, 0, 0, 0, padding))
    inward = b.double().repeat_interleave(num_heads // b.size(2), 2)
    inward = torch.nn.functional.pad(inward, (0, 0, 0, 0, 0, padding))
    weight = torch.exp(decay.double()[..., -1:] - decay.double()) * dt.double()
    return torch.einsum(
        "bclhp,bclhn,bhcl->bchpn",
        inputs.view(batch, chunks, chunk, num_heads, p),
        inward.view(batch, chunks, chunk, num_heads, -1),
        weight,
    )


def random_inputs(
    sizes: tuple[int, int, int, int], chunk: int, widths: tuple[int, int], dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """Projections, inputs, steps and decays of a random model.

    Args:
        sizes: batch, heads, groups and length.
        chunk: positions in a chunk.
        widths: of a head (p) and of the state (n).
        dtype: of projections and inputs.
    """
    (batch, heads, groups, length), (p, n) = sizes, widths
    generator = torch.Generator().manual_seed(0)
    chunks = helion.cdiv(length, chunk)
    b = torch.randn(batch, length, groups, n, generator=generator)
    x = torch.randn(batch, length, heads, p, generator=generator)
    steps = torch.rand(batch, heads, chunks, chunk, generator=generator)
    decay = -(torch.rand(batch, heads, chunks, chunk, generator=generator) * 0.1).cumsum(-1)
    return b.to(dtype), x.to(dtype), steps, decay


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes, chunk, widths = (
        ((8, 80, 1, 4096), 256, (64, 128)) if device == "cuda" else ((1, 4, 2, 150), 64, (32, 16))
    )
    args = tuple(x.to(device) for x in random_inputs(sizes, chunk, widths, torch.bfloat16))
    # The weighted inputs are rounded before the product.
    report = check_against(
        mamba2_chunk_state(*args),
        reference(*args),
        reduction_length=chunk,
        intermediate=torch.bfloat16,
    )
    print(f"mamba2_chunk_state: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
