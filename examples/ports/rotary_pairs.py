"""Rotary embeddings of neighbours (GPT-J, FlashAttention's `interleaved=True`).

Elements 2i and 2i + 1 of a head are the two coordinates that are turned by one angle: a row is seen
as pairs, split into two halves, and joined again. Positions may begin anywhere in the tables, as
they do when tokens follow a cache.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel
def rotate_pairs(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    """Turn `[batch, token, head, 2 * pairs]`; tables are `[position, pairs]`."""
    num_sequences, num_tokens, num_heads, width = x.shape
    width = hl.specialize(width)
    out = torch.empty_like(x)
    for sequence, token, head in hl.tile(
        [num_sequences, num_tokens, num_heads], block_size=[1, None, None]
    ):
        rows = x[sequence.begin, token, head, :].to(torch.float32)
        left, right = hl.split(rows.reshape(token, head, width // 2, 2))
        position = token.index + starts[sequence.begin]
        c, s = cos[position, :][:, None, :], sin[position, :][:, None, :]
        turned = hl.join(left * c - right * s, left * s + right * c)
        out[sequence.begin, token, head, :] = turned.reshape(token, head, width).to(x.dtype)
    return out


def reference(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    positions = starts[:, None] + torch.arange(x.size(1), device=x.device)
    c, s = cos.double()[positions][:, :, None], sin.double()[positions][:, :, None]
    left, right = x.double()[..., ::2], x.double()[..., 1::2]
    return torch.stack([left * c - right * s, left * s + right * c], -1).flatten(-2)


def random_inputs(
    shape: tuple[int, int, int, int], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Heads, the tables of angles, and where each sequence begins in them."""
    num_sequences, num_tokens, _, width = shape
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).to(dtype)
    starts = torch.randint(0, 5, [num_sequences], generator=generator)
    pairs = torch.arange(width // 2) * 2 / width
    angles = torch.arange(num_tokens + 5)[:, None] / 10_000**pairs
    return x, angles.cos(), angles.sin(), starts


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = [x.to(device) for x in random_inputs((2, 300, 8, 64), torch.bfloat16)]
    torch.testing.assert_close(
        rotate_pairs(*inputs).double(), reference(*inputs), rtol=1e-2, atol=1e-2
    )
    print("rotary_pairs: as it should be")


if __name__ == "__main__":
    main()
