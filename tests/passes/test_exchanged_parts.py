"""Rows of a product reduced by several programs: when they exchange parts, and what they get."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
import torch

from examples.matmul_layernorm import matmul_layernorm
from examples.matmul_row_reduction import matmul_softmax
from tests.lowering import split_function
from tests.passes import row_exchange_kernels
from tests.passes import row_product_kernels as kernels
from tests.passes.kernel_texts import results_of
from tests.passes.test_split_rows import (
    FAMILY,
    SHAPES,
    XY,
    Named,
    affine,
    complete,
    function_of,
    normal,
    padded_results_of,
    plain,
    split,
)
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import MOST_IN_GROUP, Grid, GroupBarrier, Loop
from tilesmith.ir.ops.memory import Load, ProgramBarrier, Store
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import Dim
from tilesmith.passes.exchanged_parts import MOST_COLUMNS
from tilesmith.passes.split_rows import Form

BLOCKS = [
    {"tile_m": 16, "tile_k": 8, "columns": 16},
    {"tile_m": 4, "tile_k": 32, "columns": 64},
    {"tile_m": 1, "tile_k": 16, "columns": 32},
]
RUNS = [results_of, padded_results_of]


def exchanged(kernel: Any, named: Named) -> Function:
    return split(function_of(kernel, tuple(named.values())), Form.EXCHANGE)


def group_barriers(function: Function) -> list[GroupBarrier]:
    return [op for op in walk_function(function) if isinstance(op, GroupBarrier)]


@pytest.mark.parametrize("name", FAMILY)
def test_norms_and_powers_need_one_exchange(name: str) -> None:
    kernel, _, make = FAMILY[name]
    assert len(group_barriers(exchanged(kernel, make(37, 29, 45)))) == 1


def test_the_product_stays_where_it_is() -> None:
    function = exchanged(matmul_layernorm, affine(37, 29, 45))
    (grid,) = [op for op in function.body.ops if isinstance(op, Grid)]
    # Tiles of a row follow one another.
    assert grid.blocks == ("columns", "tile_m")
    kinds = (Loop, Store, GroupBarrier, ProgramBarrier, Load)
    steps = [op for op in grid.body.ops if isinstance(op, kinds)]
    shown = [
        (op.name, op.tensor.name) if isinstance(op, (Load, Store)) else (op.name, "")
        for op in steps
    ]
    assert shown == [
        ("loop", ""), ("load", "weight"), ("load", "bias"),
        ("store", "row_sum_parts"), ("store", "row_squares_parts"), ("group_barrier", ""),
        ("load", "row_sum_parts"), ("load", "row_squares_parts"), ("store", "out"),
    ]  # fmt: skip


def test_parts_are_made_at_launch() -> None:
    function = exchanged(matmul_layernorm, affine(37, 29, 45))
    made = {p.value.name: p.source for p in function.parameters if p.source.startswith("torch.")}
    assert made == {
        "row_sum_parts": "torch.empty((4, 37), dtype=torch.float32, device=x.device)",
        "row_squares_parts": "torch.empty((4, 37), dtype=torch.float32, device=x.device)",
        "row_counts": "torch.zeros((38,), dtype=torch.int32, device=x.device)",
    }


@pytest.mark.parametrize(
    ("n", "dtype", "lanes", "low"),
    [
        (45, torch.float32, 4, 12),
        (512, torch.float32, 8, 64),
        (512, torch.bfloat16, 4, 128),
        (1536, torch.float32, 32, 48),
        (4096, torch.float32, 32, 128),
        (4096, torch.float16, 32, 128),
        (8192, torch.bfloat16, 32, 256),
    ],
)
def test_a_row_has_no_more_parts_than_there_is_room_for(
    n: int, dtype: torch.dtype, lanes: int, low: int
) -> None:
    sizes = (64, 32), (32, n)
    args = tuple(torch.empty(size, dtype=dtype, device="meta") for size in sizes)
    function = split(function_of(matmul_softmax, args), Form.EXCHANGE)
    (columns,) = [block for block in function.blocks if block.name == "columns"]
    assert (columns.slot, columns.extent, columns.low) == (2, n, low)
    parts = next(p.value for p in function.parameters if p.value.name == "row_max_parts")
    assert parts.tensor.shape == (lanes, 64)
    assert lanes <= MOST_IN_GROUP


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("run", RUNS)
def test_what_needs_a_whole_row_first_waits_twice(run: Any, shape: tuple[int, int, int]) -> None:
    named = plain(*shape)
    function = exchanged(kernels.around_the_maximum, named)
    first, second = group_barriers(function)
    assert first.counts is second.counts
    product = named["x"].double() @ named["y"].double()
    below = product - product.amax(-1, keepdim=True)
    total = (below * below).sum(-1)
    for blocks in BLOCKS:
        found = run(function, complete(function, named), blocks)
        torch.testing.assert_close(found["sums"].double(), total, rtol=1e-5, atol=1e-5)
        exact = below / total[:, None]
        torch.testing.assert_close(found["out"].double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("run", RUNS)
def test_several_reductions_share_an_exchange(run: Any) -> None:
    named = plain(37, 29, 45)
    function = exchanged(kernels.two_statistics, named)
    assert len(group_barriers(function)) == 1
    product = named["x"].double() @ named["y"].double()
    exact = torch.logsumexp(product, -1) + product.var(-1)
    for blocks in BLOCKS:
        found = run(function, complete(function, named), blocks)
        torch.testing.assert_close(found["out"].double(), exact, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found["least"].double(), product.amin(-1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("run", RUNS)
def test_a_mean_without_its_axis_is_one_to_sum_squares_around(run: Any) -> None:
    named = plain(37, 29, 45)
    function = exchanged(row_exchange_kernels.layernorm_with_statistics, named)
    assert len(group_barriers(function)) == 1
    product = named["x"].double() @ named["y"].double()
    exact = {
        "out": torch.nn.functional.layer_norm(product, [45], eps=1e-5),
        "means": product.mean(-1),
        "rstds": torch.rsqrt(product.var(-1, correction=0) + 1e-5),
    }
    for blocks in BLOCKS:
        found = run(function, complete(function, named), blocks)
        for name, expected in exact.items():
            torch.testing.assert_close(found[name].double(), expected, rtol=1e-5, atol=1e-5)


def odd_rows(n: int) -> torch.Tensor:
    """Rows with parts, or nothing, of infinities and of what is no number."""
    rows = normal(8, n) * 30
    rows[0, :] = -inf
    rows[1, : n // 2] = -inf
    rows[2, n // 2 :] = -inf
    rows[3, 5] = inf
    rows[4, :] = inf
    rows[5, n - 1] = nan
    rows[6, :] = -3e4
    rows[6, :16] = -inf
    return rows


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("kernel", [kernels.added_rows, kernels.log_of_added_rows])
def test_infinite_elements_come_out_as_from_whole_rows(kernel: Any, run: Any) -> None:
    shift = odd_rows(45)
    named = {"x": torch.zeros(8, 29), "y": torch.zeros(29, 45), "shift": shift}
    function = exchanged(kernel, named)
    whole = torch.softmax if kernel is kernels.added_rows else torch.logsumexp
    exact = whole(shift.double(), -1)
    for blocks in BLOCKS:
        found = run(function, complete(function, named), blocks)["out"].double()
        torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_variances_of_parts_do_not_lose_digits_to_a_large_mean() -> None:
    shift = normal(8, 45) + 1000
    named = {"x": torch.zeros(8, 29), "y": torch.zeros(29, 45), "shift": shift}
    function = exchanged(kernels.layernorm_of_added_rows, named)
    exact = torch.nn.functional.layer_norm(shift.double(), [45], eps=1e-5)
    for blocks in BLOCKS:
        found = results_of(function, complete(function, named), blocks)["out"]
        # The mean is off by an ulp of 1000 or two.
        torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=2e-4)


def test_results_of_rows_are_stored_by_one_program() -> None:
    function = exchanged(kernels.two_statistics, plain(37, 29, 45))
    stores = [op for op in walk_function(function) if isinstance(op, Store)]
    results = [op for op in stores if op.tensor.name in ("out", "least")]
    assert len(results) == 2
    assert all(op.mask is not None for op in results)
    assert all(op.value.tile.shape == (Dim.of("tile_m"),) for op in results)


REFUSED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "positions": (kernels.largest_product, XY),
    "numbered_columns": (kernels.some_columns, (*XY, 21)),
    "three_exchanges": (kernels.three_in_a_row, XY),
    "reduced_before": (row_exchange_kernels.reduced_before_the_loop, (*XY, normal(37, 45))),
    "stored_over": (row_exchange_kernels.stored_over, XY),
    "overwrites_an_operand": (kernels.in_place, (normal(37, 45), normal(45, 45))),
    "long_rows": (
        matmul_softmax,
        tuple(torch.empty(s, device="meta") for s in ((64, 32), (32, MOST_COLUMNS + 1))),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_functions_are_left_alone(name: str) -> None:
    kernel, args = REFUSED[name]
    function = function_of(kernel, args)
    # They can be split, but not like this.
    assert split_function(function, Form.PHASES) is not None
    assert split_function(function, Form.EXCHANGE) is None
