"""Random words by their counter: four neighbours share one, whatever their positions are."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import OLDER_TARGETS, lanes, on_backend

W = lanes()


@helion.kernel
def line(x, seed):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = hl.rand([t], seed=seed) + x[t]
    return out


@helion.kernel
def plane(x, seed):
    out = torch.empty_like(x)
    for t, u in hl.tile(x.size()):
        out[t, u] = hl.rand([t, u], seed=seed) + x[t, u]
    return out


@helion.kernel
def sums(x, seed):
    out = x.new_empty(x.size(0))
    for t in hl.tile(x.size(0)):
        out[t] = (hl.rand([t, x.size(1)], seed=seed) + x[t, :]).sum(-1)
    return out


@helion.kernel
def moved(x, seed, first):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = hl.rand([t], seed=seed, offsets=t.index + first) + x[t]
    return out


@helion.kernel
def words(x, starts):
    """Words by counters that begin where rows say."""
    out = torch.empty_like(x)
    for t, u in hl.tile(x.size()):
        start = (starts[t] * 0.5).to(torch.int32)
        word = (u.index.to(torch.int32)[None, :] + start[:, None]) >> 2
        for _ in hl.static_range(4):
            word = word * 5 + 7
            word = word ^ (word >> 3)
        out[t, u] = word + x[t, u]
    return out


def numbers(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


def is_shared(bound, config=None) -> bool:  # type: ignore[no-untyped-def]
    text = bound.to_code(config or bound.default_config(), form="llvm")
    return "i32 0, i32 0, i32 0, i32 0, i32 1, i32 1, i32 1, i32 1" in text


@pytest.mark.parametrize("length", [1, 3, W - 1, W, W + 1, 4 * W - 1, 4 * W, 4 * W + 1, 5003])
def test_words_of_a_line(length: int) -> None:
    x = numbers(length)
    assert torch.equal(on_backend(line, "cpu")(x, 7), on_backend(line, "reference")(x, 7))


@pytest.mark.parametrize("target", OLDER_TARGETS)
def test_words_of_a_line_on_older_machines(target: str) -> None:
    x = numbers(1003)
    bound = on_backend(line, "cpu").bind((x, 7), target=target)
    config = bound.default_config()
    found = bound.compile_config(config)(x, 7)
    assert torch.equal(found, on_backend(line, "reference")(x, 7))


@pytest.mark.parametrize("sizes", [(3, 5), (7, 64), (5, 100), (4, 1000), (3, 30), (0, 8)])
@pytest.mark.parametrize("blocks", [[1, 64], [2, 16], [4, 32]])
def test_words_of_a_plane(sizes: tuple[int, int], blocks: list[int]) -> None:
    x = numbers(*sizes)
    found = on_backend(plane, "cpu").bind((x, 7))
    y = found.compile_config(helion.Config(block_sizes=blocks))(x, 7)
    assert torch.equal(y, on_backend(plane, "reference")(x, 7))


@pytest.mark.parametrize("columns", [30, 64, 100, 1000])
def test_words_that_are_summed(columns: int) -> None:
    x = numbers(5, columns) / 1000
    found, expected = on_backend(sums, "cpu")(x, 7), on_backend(sums, "reference")(x, 7)
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("first", [0, 1, 2, 3, 4])
def test_positions_of_ones_own(first: int) -> None:
    x = numbers(4 * W + 3)
    found = on_backend(moved, "cpu")(x, 7, first)
    assert torch.equal(found, on_backend(moved, "reference")(x, 7, first))


def test_fractions_of_numbers_are_multiples_of_nothing() -> None:
    x, starts = torch.zeros(9, 64, dtype=torch.int32), torch.arange(9.0)
    config = helion.Config(block_sizes=[4, 64])
    y = on_backend(words, "cpu").bind((x, starts)).compile_config(config)(x, starts)
    word = (torch.arange(64) + (starts * 0.5).long()[:, None]) >> 2
    for _ in range(4):
        word = word * 5 + 7
        word = word ^ (word >> 3)
    assert torch.equal(y, word.int())


def test_a_counter_is_computed_once_where_groups_surely_begin_with_a_lane() -> None:
    assert is_shared(on_backend(line, "cpu").bind((numbers(5003), 7)))
    config = helion.Config(block_sizes=[1, 64])
    assert is_shared(on_backend(plane, "cpu").bind((numbers(5, 100), 7)), config)
    # Rows of 30 begin in the middle of a group.
    assert not is_shared(on_backend(plane, "cpu").bind((numbers(5, 30), 7)), config)
    # Nobody knows where it begins.
    assert not is_shared(on_backend(moved, "cpu").bind((numbers(5003), 7, 1)))
