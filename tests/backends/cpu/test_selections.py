"""Where only the first elements in order are asked for, no more are put in order."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend

LENGTHS = (1, 2, 7, 16, 17, 100)


@helion.kernel
def first(x: torch.Tensor, k: hl.constexpr) -> tuple[torch.Tensor, torch.Tensor]:
    values = x.new_empty([x.size(0), k])
    places = torch.empty([x.size(0), k], dtype=torch.int64, device=x.device)
    for t in hl.tile(x.size(0)):
        values[t, :], places[t, :] = torch.topk(x[t, :], k)
    return values, places


@helion.kernel
def least_down(x: torch.Tensor, k: hl.constexpr) -> tuple[torch.Tensor, torch.Tensor]:
    values = x.new_empty([x.size(1)])
    places = torch.empty([k, x.size(1)], dtype=torch.int64, device=x.device)
    for t in hl.tile(x.size(1)):
        values[t] = torch.kthvalue(x[:, t], k, dim=0).values
        places[:, t] = torch.topk(x[:, t], k, dim=0, largest=False).indices
    return values, places


def orders(n: int) -> torch.Tensor:
    """Rows that go up, go down, are all the same, go up and down, and have some order."""
    up = torch.arange(n)
    mixed = torch.randperm(n, generator=torch.Generator().manual_seed(n))
    return torch.stack([up, up.flip(0), up * 0, (up - n // 2).abs(), mixed, mixed % 5])


def counts(n: int) -> list[int]:
    return sorted({1, min(2, n), (n + 3) // 4, (n + 1) // 2, max(n - 1, 1), n})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.float64])
@pytest.mark.parametrize("n", LENGTHS)
def test_the_first_of_rows_in_any_order(n: int, dtype: torch.dtype, backend: str) -> None:
    x = orders(n).to(dtype)
    right = x.sort(dim=1, descending=True, stable=True)
    for k in counts(n):
        values, places = on_backend(first, backend)(x, k)
        assert torch.equal(values, right.values[:, :k])
        assert torch.equal(places, right.indices[:, :k])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", LENGTHS)
def test_down_columns(n: int, backend: str) -> None:
    x = orders(n).T.float().contiguous()
    if n > 2:
        x[n // 2, 0] = float("nan")
        x[n // 3, 1] = float("-inf")
    right = x.sort(dim=0, stable=True)
    for k in counts(n):
        values, places = on_backend(least_down, backend)(x, k)
        assert torch.equal(values.nan_to_num(7), right.values[k - 1].nan_to_num(7))
        assert torch.equal(places, right.indices[:k])


def test_no_whole_row_is_put_in_order() -> None:
    """A row was: of 32000 numbers the first 40 took 120 times as long as in eager torch."""
    text = first.bind((torch.randn(3, 100), 4)).to_code()
    assert "# the first 4 ascending" in text


def test_one_function_for_each_count() -> None:
    @helion.kernel
    def twice(x: torch.Tensor) -> torch.Tensor:
        out = x.new_empty([x.size(0), 4])
        for t in hl.tile(x.size(0)):
            few, more = torch.topk(x[t, :], 2).values, torch.topk(x[t, :], 4).values
            again = torch.topk(-x[t, :], 4).values
            out[t, :] = more + again + few.sum(1)[:, None]
        return out

    x = torch.randint(0, 100, (5, 33)).float()
    high, low = x.topk(4).values, (-x).topk(4).values
    assert torch.equal(twice(x), high + low + high[:, :2].sum(1)[:, None])
