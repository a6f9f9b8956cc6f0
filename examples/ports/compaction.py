"""Stream compaction (Thrust's `copy_if`): the marked elements of a list, one behind the other.

Each tile first counts what it keeps. Behind a barrier each adds up the counts of the tiles before
it, which tells where its own elements begin; a running sum of the marks does the rest.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel
def compact(x: torch.Tensor, keep: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The kept elements with zeros behind them, and how many there are."""
    n = x.size(0)
    block = hl.register_block_size(1024)
    counts = torch.zeros([helion.cdiv(n, block)], dtype=torch.int32, device=x.device)
    out = torch.zeros_like(x)
    total = torch.zeros([1], dtype=torch.int32, device=x.device)
    for tile in hl.tile(n, block_size=block):
        counts[tile.id] = keep[tile].to(torch.int32).sum()
    hl.barrier()
    for tile in hl.tile(n, block_size=block):
        first = hl.zeros([], dtype=torch.int64)
        for earlier in hl.tile(tile.id):
            first = first + counts[earlier].sum()
        marks = keep[tile].to(torch.int32)
        hl.store(out, [first + torch.cumsum(marks, 0) - 1], x[tile], extra_mask=keep[tile])
        hl.atomic_add(total, [0], marks.sum())
    return out, total


def reference(x: torch.Tensor, keep: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    kept = x.double()[keep]
    out = torch.zeros_like(x, dtype=torch.float64)
    out[: kept.numel()] = kept
    return out, torch.tensor([kept.numel()], dtype=torch.int32, device=x.device)


def random_marks(n: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Elements, a third of which are marked."""
    generator = torch.Generator().manual_seed(0)
    marks = torch.randint(0, 3, [n], generator=generator) == 0
    return torch.randn(n, generator=generator).to(dtype), marks


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = [
        x.to(device) for x in random_marks(1 << 20 if device == "cuda" else 5000, torch.float32)
    ]
    out, total = compact(*inputs)
    expected, count = reference(*inputs)
    assert torch.equal(out.double(), expected)
    assert torch.equal(total, count)
    print(f"compaction: {total.item()} of {out.numel()} elements are kept, as they should")


if __name__ == "__main__":
    main()
