"""The twelve puzzles, in increasing difficulty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

import torch

from tilesmith.puzzles.checking import Arguments
from tilesmith.puzzles.puzzle import HEAD, Puzzle, notebook

INTRODUCTION = """\
# Twelve puzzles

Each asks for one small kernel, and runs on any CPU. Complete the cell (`...` stands for what is
missing), run it, then run the cell below: it checks bounds and races, compares with fp64, and draws
which program touches which element. `puzzle(3).hint` helps.
"""


def _randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _integers(high: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


def _examples(
    make: Callable[..., Arguments], *sizes: tuple[int, ...]
) -> Callable[[], Sequence[Arguments]]:
    return lambda: [make(*size) for size in sizes]


def _moving_sum(x: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(x, (1, 1))
    return padded[:-2] + padded[1:-1] + padded[2:]


def _histogram(values: torch.Tensor, num_bins: int) -> torch.Tensor:
    return torch.bincount(values, minlength=num_bins).to(torch.int32)


def _ragged_means(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    ends = offsets.tolist()
    return torch.stack([values[a:b].mean() for a, b in pairwise(ends)])


def _ragged(*lengths: int) -> Arguments:
    offsets = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    return _randn(sum(lengths)), offsets


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.T / q.shape[1] ** 0.5, dim=1) @ v


_EASY = (
    Puzzle(
        1, "add_ten", "Add ten",
        "Add 10 to every element of a vector. A program gets a tile: use it as an index.",
        "out = x + 10",
        """
        @tilesmith.kernel
        def add_ten(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                out[tile] = ...
            return out
        """,
        "x[tile] is the part of x that this program has. Torch operators work on it.",
        lambda x: x + 10,
        _examples(lambda n: (_randn(n),), (8,), (1,), (37,)),
    ),
    Puzzle(
        2, "add", "Add two vectors",
        "Both vectors have 7 elements, and tiles of 2: the last tile is not full. What do you have "
        "to do about it?",
        "out = x + y",
        """
        @tilesmith.kernel
        def add(x, y):
            out = torch.empty_like(x)
            for tile in hl.tile(...):
                out[tile] = ...
            return out
        """,
        "Nothing: lanes past the end are neither read nor written. Give hl.tile the true length.",
        lambda x, y: x + y,
        _examples(lambda n: (_randn(n), _randn(n, seed=1)), (7,), (1,), (65,)),
    ),
    Puzzle(
        3, "outer_sum", "Every pair",
        "Add each element of x to each of y. Tile both axes: one program for each block of the "
        "result.",
        "out = x[:, None] + y[None, :]",
        """
        @tilesmith.kernel
        def outer_sum(x, y):
            out = torch.empty([x.size(0), y.size(0)], dtype=x.dtype, device=x.device)
            for tile_m, tile_n in hl.tile([x.size(0), y.size(0)]):
                out[tile_m, tile_n] = ...
            return out
        """,
        "x[tile_m] has one axis. Index the value with [:, None], as in torch, to give it another.",
        lambda x, y: x[:, None] + y[None, :],
        _examples(lambda m, n: (_randn(m), _randn(n, seed=1)), (4, 6), (1, 9), (17, 33)),
    ),
    Puzzle(
        4, "transpose", "Turn a matrix",
        "Write the transposed matrix. The tile that is read and the tile that is written are not "
        "the same.",
        "out = x.T",
        """
        @tilesmith.kernel
        def transpose(x):
            m, n = x.size()
            out = torch.empty([n, m], dtype=x.dtype, device=x.device)
            for tile_m, tile_n in hl.tile([m, n]):
                out[...] = ...
            return out
        """,
        "The value has the axes [tile_m, tile_n]; the place wants [tile_n, tile_m]. `.T` helps.",
        lambda x: x.T,
        _examples(lambda m, n: (_randn(m, n),), (4, 6), (1, 5), (19, 33)),
    ),
)  # fmt: skip
_MIDDLE = (
    Puzzle(
        5, "row_sum", "Add up rows",
        "Sum each row. Rows are too long for one tile: walk them with a loop inside the program, "
        "and carry the sum.",
        "out = x.sum(1)",
        """
        @tilesmith.kernel
        def row_sum(x):
            m, n = x.size()
            out = torch.empty([m], dtype=x.dtype, device=x.device)
            for tile_m in hl.tile(m):
                acc = hl.zeros([tile_m], dtype=torch.float32)
                for tile_n in hl.tile(n):
                    ...
                out[tile_m] = acc
            return out
        """,
        "acc = acc + x[tile_m, tile_n].sum(1). Lanes past the end count as zero in sums.",
        lambda x: x.sum(1),
        _examples(lambda m, n: (_randn(m, n),), (4, 7), (1, 1), (13, 100)),
    ),
    Puzzle(
        6, "softmax", "Softmax without overflow",
        "exp(100) is infinite in fp32. Subtract the largest element of each row first. `:` takes a "
        "whole row.",
        "out = torch.softmax(x, 1)   # without calling torch.softmax",
        """
        @tilesmith.kernel
        def softmax(x):
            out = torch.empty_like(x)
            for tile in hl.tile(x.size(0)):
                row = x[tile, :]
                ...
            return out
        """,
        "largest = torch.amax(row, dim=1, keepdim=True); then exp of the difference, and its sum.",
        lambda x: torch.softmax(x, 1),
        _examples(lambda m, n: (_randn(m, n) * 100,), (4, 6), (1, 1), (9, 130)),
    ),
    Puzzle(
        7, "matmul", "Multiply matrices",
        "Each program makes one block of the result: it walks the shared axis and adds products of "
        "tiles.",
        "out = x @ y",
        """
        @tilesmith.kernel
        def matmul(x, y):
            m, k = x.size()
            k, n = y.size()
            out = torch.empty([m, n], dtype=x.dtype, device=x.device)
            for tile_m, tile_n in hl.tile([m, n]):
                ...
            return out
        """,
        "acc = hl.zeros([tile_m, tile_n]); for tile_k in hl.tile(k): acc = torch.addmm(acc, ...)",
        lambda x, y: x @ y,
        _examples(lambda m, k, n: (_randn(m, k), _randn(k, n, seed=1)), (4, 6, 4), (1, 1, 1),
                  (17, 40, 33)),
    ),
    Puzzle(
        8, "gather_rows", "Look rows up",
        "Row i of the result is row index[i] of a table: what is read depends on data.",
        "out = table[index]",
        """
        @tilesmith.kernel
        def gather_rows(table, index):
            n = table.size(1)
            out = torch.empty([index.size(0), n], dtype=table.dtype, device=table.device)
            for tile_b, tile_n in hl.tile([index.size(0), n]):
                rows = ...
                out[tile_b, tile_n] = ...
            return out
        """,
        "rows = index[tile_b] is a tile of integers, and may be an index itself.",
        lambda table, index: table[index],
        _examples(lambda v, b, n: (_randn(v, n), _integers(v, b)), (5, 6, 4), (1, 1, 1),
                  (40, 33, 17)),
    ),
)  # fmt: skip
_HARD = (
    Puzzle(
        9, "moving_sum", "Neighbours",
        "Add to each element its left and right neighbour; there is none before the first and "
        "after the last. A read outside is an error: mask it.",
        "out[i] = x[i - 1] + x[i] + x[i + 1]",
        """
        @tilesmith.kernel
        def moving_sum(x):
            n = x.size(0)
            out = torch.empty_like(x)
            for tile in hl.tile(n):
                left = ...
                right = ...
                out[tile] = left + x[tile] + right
            return out
        """,
        "hl.load(x, [tile.index - 1], extra_mask=tile.index > 0) reads 0 where the mask is false.",
        _moving_sum,
        _examples(lambda n: (_randn(n),), (8,), (1,), (2,), (37,)),
    ),
    Puzzle(
        10, "ragged_means", "Rows of different length",
        "The rows of a ragged matrix lie end to end; row i is values[offsets[i]:offsets[i + 1]]. "
        "Give the mean of each.",
        "out[i] = values[offsets[i]:offsets[i + 1]].mean()",
        """
        @tilesmith.kernel
        def ragged_means(values, offsets):
            rows = offsets.size(0) - 1
            out = torch.empty([rows], dtype=values.dtype, device=values.device)
            for row in hl.grid(rows):
                begin, end = offsets[row], offsets[row + 1]
                ...
            return out
        """,
        "hl.tile(begin, end) walks from begin to end, also where memory knows them. Carry a sum.",
        _ragged_means,
        _examples(_ragged, (3, 1, 4), (1,), (7, 20, 2, 33)),
    ),
    Puzzle(
        11, "histogram", "Count",
        "Count how often each value occurs. Two programs may count the same value at the same "
        "time: the race checker will tell you.",
        "out = torch.bincount(values, minlength=num_bins)",
        """
        @tilesmith.kernel
        def histogram(values, num_bins: hl.constexpr):
            out = torch.zeros([num_bins], dtype=torch.int32, device=values.device)
            for tile in hl.tile(values.size(0)):
                ...
            return out
        """,
        "hl.atomic_add(out, [values[tile]], 1) adds without losing what others add.",
        _histogram,
        _examples(lambda n, bins: (_integers(bins, n), bins), (10, 4), (1, 1), (200, 17)),
    ),
    Puzzle(
        12, "attention", "Attention in one pass",
        "Softmax of scores, times values, without ever holding a whole row of scores: walk the "
        "keys, keep the largest score so far and the sum, and correct both when the largest "
        "changes.",
        "out = softmax(q @ k.T / sqrt(d)) @ v",
        """
        @tilesmith.kernel
        def attention(q, k, v):
            m, d = q.size()
            n = k.size(0)
            d = hl.specialize(d)
            out = torch.empty_like(q)
            for tile_m in hl.tile(m):
                largest = hl.full([tile_m], float("-inf"))
                total = hl.zeros([tile_m])
                acc = hl.zeros([tile_m, d])
                query = q[tile_m, :] * d**-0.5
                for tile_n in hl.tile(n):
                    scores = ...
                    ...
                out[tile_m, :] = acc / total[:, None]
            return out
        """,
        "With new = max(largest, scores.amax(1)), what was added before shrinks by "
        "exp(largest - new); do that to total and to acc, then add exp(scores - new[:, None]).",
        _attention,
        _examples(lambda m, n, d: (_randn(m, d), _randn(n, d, seed=1), _randn(n, d, seed=2)),
                  (4, 6, 4), (1, 1, 1), (19, 70, 16)),
    ),
)  # fmt: skip


def puzzles() -> tuple[Puzzle, ...]:
    """All of them."""
    return _EASY + _MIDDLE + _HARD


def puzzle(number: int | str) -> Puzzle:
    """A puzzle by its number, or by the name of its kernel."""
    found: dict[Any, Puzzle] = {}
    for item in puzzles():
        found |= {item.number: item, str(item.number): item, item.name: item}
    if number not in found:
        near = get_close_matches(str(number), [item.name for item in puzzles()], n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are 1 to {len(puzzles())}"
        raise LookupError(f"there is no puzzle {number}: {hint}")
    return found[number]


def puzzle_notebook() -> str:
    """The notebook of all puzzles."""
    imports = f"{HEAD.strip()}\nfrom tilesmith.puzzles import puzzle"
    cells = [("markdown", INTRODUCTION), ("code", imports)]
    return notebook([*cells, *(part for item in puzzles() for part in _cells(item))])


def _cells(item: Puzzle) -> list[tuple[str, str]]:
    return [
        ("markdown", f"## {item.heading}\n\n{item.task}\n\n```python\n{item.formula}\n```"),
        ("code", item.source),
        ("code", f"puzzle({item.number}).check({item.name})"),
    ]
