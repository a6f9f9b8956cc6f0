"""Elements by their position: extremes, neighbours that nobody foresaw, single positions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import lanes

W = lanes()
LENGTHS = (1, W - 1, W, W + 1, 4 * W, 9 * W + 5)
NAN, INF = float("nan"), float("inf")


def run(kernel: Any, *args: Any, blocks: list[int], **settings: Any) -> tuple[Any, str]:
    """The result of a config, and its loops as text."""
    bound = helion.kernel(kernel, **settings).bind(args)
    config = helion.Config(block_sizes=blocks)
    return bound.compile_config(config)(*args), bound.to_code(config)


def extremes(x, axis: hl.constexpr):
    n = x.size(1 - axis)
    places = torch.empty([2, n], dtype=torch.int64, device=x.device)
    found = torch.empty([2, n], dtype=x.dtype, device=x.device)
    for t in hl.tile(n):
        tile = x[t, :] if axis == 1 else x[:, t]
        places[0, t], places[1, t] = tile.argmax(axis), tile.argmin(axis)
        found[0, t], found[1, t] = tile.amax(axis), tile.amin(axis)
    return places, found


def rows_of_extremes(length: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows with ties, with NaN, and of nothing but the least or greatest number."""
    x = (torch.arange(8 * length) * 37 % 11 - 5).view(8, length).to(dtype)
    if dtype.is_floating_point:
        x[1, length // 2 :] = NAN
        x[2], x[3] = -INF, INF
        x[4, -1] = NAN
        x[5, 0] = NAN
    return x


@pytest.mark.parametrize("static_shapes", [True, False])
@pytest.mark.parametrize("axis", [1, 0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32])
def test_first_position_of_an_extreme(dtype: torch.dtype, axis: int, static_shapes: bool):
    for length in LENGTHS:
        x = rows_of_extremes(length, dtype)
        x = x if axis == 1 else x.T.contiguous()
        (places, found), _ = run(extremes, x, axis, blocks=[4], static_shapes=static_shapes)
        assert torch.equal(places, torch.stack([x.argmax(axis), x.argmin(axis)])), length
        wanted = torch.stack([x.amax(axis), x.amin(axis)])
        assert torch.equal(found.nan_to_num(77), wanted.nan_to_num(77)), length


def take(x, at, is_wanted, shift: int):
    out = torch.empty([x.size(0), at.size(0)], dtype=x.dtype, device=x.device)
    for t, u in hl.tile(out.size()):
        out[t, u] = hl.load(x, [t, at[u] + shift], extra_mask=is_wanted[u][None, :])
    return out


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("count", [W, 3 * W, 3 * W - 1, 1])
def test_positions_that_happen_to_be_neighbours(index: torch.dtype, count: int):
    """Runs that begin anywhere, runs that break, and lanes that a mask leaves out."""
    x = torch.randn(3, 5 * W)
    straight = torch.arange(count) + 7
    broken = straight.clone()
    broken[count // 2 :] += 3
    outside = straight.clone()
    outside[-1] = 1 << 30
    everywhere, all_but_last = torch.ones(count, dtype=torch.bool), torch.ones(count) > 0
    all_but_last[-1] = False
    cases = ((straight, everywhere), (straight.flip(0), everywhere), (broken, everywhere),
             (outside, all_but_last), (straight - 7 - count, straight < 0))  # fmt: skip
    for at, is_wanted in cases:
        found, _ = run(take, x, at.to(index) - 3, is_wanted, 3, blocks=[2, 2 * W])
        inside = torch.where(is_wanted, at, 0)
        assert torch.equal(found, torch.where(is_wanted, x[:, inside], 0.0))


def pick(x, starts_at: hl.constexpr):
    n = hl.specialize(x.size(1))
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        row, place = x[t, :], hl.arange(n)
        for j in range(starts_at, n):
            one = torch.where((place == j)[None, :], row, 0.0).sum(-1)
            most = torch.where((place == j)[None, :], row, float("-inf")).amax(-1)
            out[t, j] = one / most
    return out


@pytest.mark.parametrize("blocks", [[1], [4]])
def test_a_sum_of_one_element_is_a_lookup(blocks: list[int]):
    x = torch.randn(7, 19)
    x[2, 3], x[4, 4], x[5, 5] = NAN, INF, -0.0
    found, text = run(pick, x, 0, blocks=blocks)
    expected = (x + 0.0) / x
    assert torch.equal(found.nan_to_num(99), expected.nan_to_num(99))
    assert "by " not in text.split("for j in")[1].replace("one by one", "") or blocks == [4]
    assert "+= " not in text


def test_a_sum_begins_with_zero():
    """The sum of -0 and zeros is 0: ``1 / sum`` tells."""

    def inverse(x):
        out = torch.empty([x.size(0)])
        for t in hl.tile(x.size(0)):
            row = x[t, :]
            last = torch.where((hl.arange(4) == 3)[None, :], row, 0.0).sum(-1)
            out[t] = 1.0 / last
        return out

    found, _ = run(inverse, torch.full([3, 4], -0.0), blocks=[2])
    assert torch.equal(found, torch.full([3], INF))


def test_a_view_between_condition_and_sum():
    """Rows of a square tile become columns: the condition holds along the axis that stays."""

    def turned(x):
        out = torch.empty([2, 4])
        for t in hl.tile(1):
            picked = torch.where((hl.arange(4) == 2)[None, :], x[:, :] + t.begin, 0.0)
            out[0, :], out[1, :] = picked.T.sum(-1), picked.T.sum(0)
        return out

    x = torch.randint(-9, 9, (4, 4)).float()
    found, _ = run(turned, x, blocks=[1])
    kept = torch.zeros(4, 4)
    kept[:, 2] = x[:, 2]
    assert torch.equal(found, torch.stack([kept.sum(0), kept.sum(1)]))


def test_positions_that_may_lie_outside_are_compared():
    """Nobody knows that ``j`` is a position: outside nothing is selected."""

    def beyond(x, last: int):
        out = torch.empty([last])
        for t in hl.tile(x.size(0), block_size=1):
            row = x[t.begin, :]
            for j in range(last):
                out[j] = torch.where(hl.arange(6) == j, row, 0.0).sum(-1)
        return out

    x = torch.randn(1, 6)
    found, _ = run(beyond, x, 9, blocks=[])
    assert torch.equal(found, torch.cat([x[0], torch.zeros(3)]))


def rotate(x, steps: int):
    """A tile that changes at one position of each row, in every step."""
    n = hl.specialize(x.size(1))
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        tile, place = x[t, :], hl.arange(n)
        for _ in range(steps):
            at = tile.argmax(-1)
            tile = torch.where(place[None, :] == at[:, None], tile.amin(-1)[:, None] - 1.0, tile)
        out[t, :] = tile
    return out


@pytest.mark.parametrize("blocks", [[1], [4], [W]])
def test_one_position_of_a_carried_tile_is_written_in_place(blocks: list[int]):
    x = torch.randn(W + 2, 21)
    expected = x.clone()
    for _ in range(5):
        rows = torch.arange(len(x))
        expected[rows, expected.argmax(-1)] = expected.amin(-1) - 1.0
    found, text = run(rotate, x, 5, blocks=blocks)
    assert torch.equal(found, expected)
    assert "= where(" not in text


def test_what_is_written_may_come_from_the_tile_itself():
    def shift(x):
        n = hl.specialize(x.size(1))
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            tile, place = x[t, :], hl.arange(n)
            for j in range(n):
                total = tile.sum(-1)
                tile = torch.where((place == j)[None, :], tile * 2.0 + total[:, None], tile)
            out[t, :] = tile
        return out

    x = torch.randint(-3, 4, (5, 6)).float()
    expected = x.clone()
    for j in range(6):
        expected[:, j] = expected[:, j] * 2.0 + expected.sum(-1)
    for blocks in ([1], [4]):
        assert torch.equal(run(shift, x, blocks=blocks)[0], expected)


def eliminate(a):
    """Steps of elimination on small matrices, as many in a program as there are lanes."""
    n = hl.specialize(a.size(1))
    out = torch.empty_like(a)
    for t in hl.tile(a.size(0)):
        rest = a[t, :, :]
        for j in range(n):
            is_j = (hl.arange(n) == j)[None, None, :]
            column = torch.where(is_j, rest, 0.0).sum(-1)
            rest = rest - column[:, :, None] * column[:, None, :]
        out[t, :, :] = rest
    return out


@pytest.mark.parametrize("n", [2, 3, 7, W - 4, W + 4])
@pytest.mark.parametrize("blocks", [[1], [4], [W], [2 * W]])
def test_matrices_in_rows_and_in_lanes(n: int, blocks: list[int]):
    a = torch.randint(-1, 2, (W + 3, n, n)).double() / 8
    expected = a.clone()
    for j in range(n):
        column = expected[:, :, j].clone()
        expected = expected - column[:, :, None] * column[:, None, :]
    found, text = run(eliminate, a.float(), blocks=blocks)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    assert ("axis 0 innermost" in text) == (blocks[0] >= W > n)
