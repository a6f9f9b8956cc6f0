"""Products with one column are sums along rows: values, layouts, gathered rows, other results."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import randn
from tests.host_backends import OLDER_TARGETS
from tilesmith.numerics.compare import check_against

SIZES = [(1, 1), (2, 1), (1, 33), (3, 15), (16, 16), (17, 64), (64, 65), (130, 1009)]


@helion.kernel(backend="cpu", static_shapes=True)
def times_column(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    out = torch.empty([m, 1], dtype=torch.float32)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, 1], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = hl.dot(x[tile_m, tile_k], y[tile_k, :], acc=acc)
        out[tile_m, :] = acc
    return out


@helion.kernel(backend="cpu", static_shapes=True)
def times_column_at_once(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), 1], dtype=torch.float32)
    for tile_m in hl.tile(x.size(0)):
        out[tile_m, :] = hl.dot(x[tile_m, :], y[:, :])
    return out


@helion.kernel(backend="cpu", static_shapes=True)
def gathered(x: torch.Tensor, rows: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([rows.size(0), 1], dtype=torch.float32)
    for tile_m in hl.tile(rows.size(0)):
        row = rows[tile_m]
        acc = hl.zeros([tile_m, 1], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = hl.dot(x[row, tile_k] * 2, y[tile_k, :], acc=acc)
        out[tile_m, :] = acc + 1
    return out


def check(kernel: Any, x: torch.Tensor, y: torch.Tensor, **config: Any) -> str:
    bound = helion.kernel(kernel.fn, **kernel.settings.to_dict()).bind((x, y))
    chosen = helion.Config(**config) if config else bound.config_spec.default_config()
    result = bound.compile_config(chosen)(x, y)
    check_against(result, x.double() @ y.double(), reduction_length=x.size(1))
    return bound.to_code(chosen)


@pytest.mark.parametrize(("m", "k"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_sizes_and_types(m: int, k: int, dtype: torch.dtype) -> None:
    x, y = randn(m, k).to(dtype), randn(k, 1).to(dtype)
    texts = check(times_column, x, y), check(times_column, x, y, block_sizes=[8, 16])
    assert k == 1 or not any("@" in text.split("parallel")[1] for text in texts)
    check(times_column_at_once, x, y)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_layouts(step: int, is_transposed: bool) -> None:
    x = randn(77, 90 * step)[:, ::step]
    if is_transposed:
        x = x.t().contiguous().t()
    check(times_column, x, randn(90 * step, 3)[::step, 1:2])


@pytest.mark.parametrize("blocks", [None, [16, 32], [8, 128]], ids=str)
def test_rows_that_are_chosen_are_not_copied(blocks: list[int] | None) -> None:
    x, y, rows = randn(50, 100), randn(100, 1), torch.randint(0, 50, (70,))
    bound = gathered.bind((x, rows, y))
    config = bound.config_spec.default_config() if blocks is None else None
    config = config or helion.Config(block_sizes=blocks or [])
    exact = 2 * x[rows].double() @ y.double() + 1
    check_against(bound.compile_config(config)(x, rows, y), exact, reduction_length=100)
    assert "[16, 32]" not in bound.to_code(config)


def test_nan_and_infinity_stay_in_their_rows() -> None:
    x, y = randn(40, 70), randn(70, 1)
    x[3, 5], x[8, 69] = math.nan, math.inf
    result = times_column(x, y)
    exact = x.double() @ y.double()
    assert torch.equal(result.isnan(), exact.isnan())
    assert torch.equal(result.isinf(), exact.isinf())


@pytest.mark.parametrize(
    ("m", "k", "blocks"), [(512, 1000, [16, 1024]), (8192, 1 << 17, [64, 1 << 14])]
)
def test_defaults_are_few_whole_rows(m: int, k: int, blocks: list[int]) -> None:
    shapes = torch.empty(1).expand(m, k), torch.empty(1).expand(k, 1)
    bound = times_column.bind(shapes, target="cpu:avx512")
    assert bound.config_spec.default_config().block_sizes == blocks


@pytest.mark.parametrize("target", OLDER_TARGETS)
def test_narrower_vectors(target: str) -> None:
    x, y = randn(45, 77), randn(77, 1)
    bound = times_column.bind((x, y), target=target)
    config = helion.Config(block_sizes=[16, 32])
    exact = x.double() @ y.double()
    check_against(bound.compile_config(config)(x, y), exact, reduction_length=77)
