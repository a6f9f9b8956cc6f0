"""Rows that are loaded give the same when several programs share them; others are left alone."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest
import torch

from examples.cross_entropy import cross_entropy_fwd
from examples.cross_entropy import reference_fwd as reference_cross_entropy
from examples.jsd import jsd
from examples.kl_div import kl_div
from examples.layer_norm import layer_norm_fwd
from examples.layer_norm import reference as reference_layer_norm
from examples.long_sum import long_sum_manual
from examples.softmax import softmax, softmax_two_pass
from examples.sum import sum_columns, sum_rows
from tests.lowering import split_function
from tests.passes import shared_row_kernels as kernels
from tests.passes.kernel_texts import results_of
from tests.passes.test_split_rows import (
    Named,
    complete,
    function_of,
    normal,
    padded_results_of,
    split,
)
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Grid, GroupBarrier, If, Loop
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.traversal import walk, walk_function
from tilesmith.passes.shared_rows import MOST_KEPT
from tilesmith.passes.split_rows import Form

Results = dict[str, torch.Tensor]
SHAPES = [(1, 2), (3, 2), (5, 37), (4, 64), (2, 1003)]
RUNS = [results_of, padded_results_of]


def rows(m: int, n: int) -> Named:
    return {"x": normal(m, n)}


def labelled(m: int, n: int) -> Named:
    return {"logits": normal(m, n), "labels": torch.arange(m) % n}


def affine(m: int, n: int) -> Named:
    return {"x": normal(m, n), "weight": normal(n), "bias": normal(n + 1)[1:], "eps": 1e-5}


def shares(m: int, n: int) -> Named:
    return {"log_pred": normal(m, n).log_softmax(-1), "target": normal(m, n + 1)[:, 1:].softmax(-1)}


def logarithms(m: int, n: int) -> Named:
    return {
        "log_q": normal(m, n).log_softmax(-1),
        "log_p": normal(m, n + 1)[:, 1:].log_softmax(-1).contiguous(),
    }


def exact_kl_div(log_pred: torch.Tensor, target: torch.Tensor) -> Results:
    terms = torch.nn.functional.kl_div(log_pred.double(), target.double(), reduction="none")
    return {"loss": terms.sum(-1) / len(log_pred)}


def exact_jsd(log_q: torch.Tensor, log_p: torch.Tensor) -> Results:
    """The parts of the example's loss and its gradient, each weighted by one over all rows."""
    log_q, log_p = log_q.double(), log_p.double()
    middle = (log_q.exp() / 2 + log_p.exp() / 2).log()
    terms = log_p.exp() / 2 * (log_p - middle) + log_q.exp() / 2 * (log_q - middle)
    slope = log_q.exp() / 2 * (log_q - middle)
    return {"losses": terms.sum(-1) / len(log_q), "grad": slope / len(log_q)}


def exact_statistics(x: torch.Tensor) -> Results:
    wide = x.double()
    return {"out": wide.var(-1, correction=0) + wide.amax(-1) - wide.amin(-1), "ids": wide * 2}


Case = tuple[Any, Callable[[int, int], Named], Callable[..., Results]]
BY_LAST: dict[str, Case] = {
    "sum": (sum_rows, rows, lambda x: {"out": x.double().sum(-1)}),
    "walked_lanes": (long_sum_manual, rows, lambda x: {"out": x.double().sum(-1)}),
    "cross_entropy": (
        cross_entropy_fwd,
        labelled,
        lambda *args: dict(zip(("losses", "lse"), reference_cross_entropy(*args))),
    ),
    "kl_div": (kl_div, shares, exact_kl_div),
    "jsd": (jsd, logarithms, exact_jsd),
    "statistics": (kernels.statistics_and_doubles, rows, exact_statistics),
    "extremes": (
        kernels.walked_extremes,
        rows,
        lambda x: {
            "out": x.double().amax(-1) - x.double().amin(-1) + 3 + x.double().sum(-1),
        },
    ),
}
EXCHANGED: dict[str, Case] = {
    "softmax": (softmax, rows, lambda x: {"out": x.double().softmax(-1)}),
    "layer_norm": (
        layer_norm_fwd,
        affine,
        lambda *args: dict(zip(("out", "mean", "rstd"), reference_layer_norm(*args))),
    ),
    "cross_entropy": BY_LAST["cross_entropy"],
    "two_exchanges": (
        kernels.around_the_maximum,
        rows,
        lambda x: {
            "out": (x.double().amax(-1, keepdim=True) - x.double())
            / ((x.double() - x.double().amax(-1, keepdim=True)) ** 2 + 1).sum(-1, keepdim=True)
        },
    ),
}
CASES = [
    *((name, case, Form.PARTS) for name, case in BY_LAST.items()),
    *((name, case, Form.EXCHANGE) for name, case in EXCHANGED.items()),
]
BLOCKS = (1, 2, 8)
PARTS = (16, 64, 256)


def sizes_of(function: Function, row: int, part: int) -> dict[str, int]:
    """A tile of rows, parts with room for all of them, and loops that take a quarter of a part."""
    least = {block.name: block.low or 1 for block in function.blocks}
    part = max(part, least["columns"])
    grid = next(op for op in function.body.ops if isinstance(op, Grid))
    inner = {block.name: max(1, part // 4) for block in function.blocks}
    return inner | {grid.blocks[1]: row, "columns": part}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("name", "case", "form"), CASES, ids=[f"{c[0]}-{c[2].name}" for c in CASES]
)
def test_gives_what_whole_rows_give(
    name: str, case: Case, form: Form, shape: tuple[int, int], run: Any
) -> None:
    kernel, make, reference = case
    named = make(*shape)
    function = split(function_of(kernel, tuple(named.values())), form)
    exact = reference(*named.values())
    if "logits" in named:
        named["flat"] = named["logits"].reshape(-1)
    for row, part in zip(BLOCKS, PARTS):
        found = run(function, complete(function, named), sizes_of(function, row, part))
        for result, expected in exact.items():
            torch.testing.assert_close(found[result].double(), expected, rtol=2e-5, atol=2e-5)


def by_last(kernel: Any, *args: Any) -> Function:
    return split(function_of(kernel, args), Form.PARTS)


def test_the_last_program_puts_parts_together() -> None:
    function = by_last(sum_rows, normal(8, 1003))
    (grid,) = [op for op in function.body.ops if isinstance(op, Grid)]
    # Programs of a row follow one another.
    assert grid.blocks == ("columns", "tile_m")
    kinds = (Load, Store, Atomic, If)
    steps = [op for op in grid.body.ops if isinstance(op, kinds)]
    assert [op.name for op in steps] == ["load", "store", "atomic", "if"]
    branch = steps[-1]
    assert isinstance(branch, If)
    inside = [op for op in walk(branch.then) if isinstance(op, (Load, Store))]
    assert [op.tensor.name for op in inside] == ["row_sum_parts", "out"]


def test_rows_are_looked_up_by_the_last_program_only() -> None:
    named = labelled(8, 1003)
    function = by_last(cross_entropy_fwd, *named.values())
    (grid,) = [op for op in function.body.ops if isinstance(op, Grid)]
    assert [op.tensor.name for op in grid.body.ops if isinstance(op, Load)] == ["logits"]
    assert not any(isinstance(op, GroupBarrier) for op in walk_function(function))


def test_lanes_of_a_loop_meet_after_it() -> None:
    named = shares(8, 1003)
    function = by_last(kl_div, *named.values())
    (loop,) = [op for op in walk_function(function) if isinstance(op, Loop)]
    assert not any(isinstance(op, Reduce) for op in loop.body.ops)
    assert [len(value.tile.shape) for value in loop.results] == [2]


def test_room_for_parts() -> None:
    for length, lanes, low in ((1003, 4, 251), (128256, 128, 1002), (1 << 20, 256, 4096)):
        function = by_last(sum_rows, torch.empty(8, length, device="meta"))
        (columns,) = [block for block in function.blocks if block.name == "columns"]
        assert (columns.slot, columns.extent, columns.low) == (1, length, low)
        parts = next(p.value for p in function.parameters if p.value.name == "row_sum_parts")
        assert parts.tensor.shape == (lanes, 8)


@pytest.mark.parametrize("run", RUNS)
def test_infinite_elements_come_out_as_from_whole_rows(run: Any) -> None:
    logits = normal(7, 45) * 30
    logits[0, :] = -inf
    logits[1, :22] = -inf
    logits[2, 22:] = -inf
    logits[3, 5] = inf
    logits[4, :] = inf
    logits[5, 44] = nan
    named = {"logits": logits, "labels": torch.full((7,), 40), "flat": logits.reshape(-1)}
    function = by_last(cross_entropy_fwd, logits, named["labels"])
    # What the kernel itself makes of infinite maxima: not a number, unlike torch.logsumexp.
    wide = logits.double()
    peak = wide.amax(-1)
    exact = (wide - peak[:, None]).exp().sum(-1).log() + peak
    for row, part in zip(BLOCKS, PARTS):
        found = run(function, complete(function, named), sizes_of(function, row, part))["lse"]
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5, equal_nan=True)


X = normal(5, 45)
NEVER_BY_LAST: dict[str, tuple[Any, tuple[Any, ...]]] = {
    kernel.name: (kernel, (X,))
    for kernel in (
        kernels.running_total,
        kernels.last_turn_wins,
        kernels.decayed,
        kernels.weighted_by_number,
        kernels.peaks_of_tiles,
        kernels.peaks_of_registered_tiles,
        kernels.in_place,
        kernels.largest,
        sum_columns,
        softmax,
        softmax_two_pass,
    )
}


NEVER_BY_LAST["scaled_tiles"] = kernels.scaled_tiles, (X, X)


@pytest.mark.parametrize("name", NEVER_BY_LAST)
def test_other_functions_are_left_alone(name: str) -> None:
    kernel, args = NEVER_BY_LAST[name]
    assert split_function(function_of(kernel, args), Form.PARTS) is None


@pytest.mark.parametrize("kernel", [kernels.in_place, kernels.largest, sum_columns, kl_div])
def test_rows_that_are_not_exchanged(kernel: Any) -> None:
    args = (X, X) if kernel is kl_div else (X,)
    assert split_function(function_of(kernel, args), Form.EXCHANGE) is None


def test_rows_too_long_for_the_registers_of_a_group_are_not_exchanged() -> None:
    for length, is_kept in ((MOST_KEPT, True), (MOST_KEPT + 1, False)):
        function = function_of(softmax, (torch.empty(2, length, device="meta"),))
        assert (split_function(function, Form.EXCHANGE) is not None) == is_kept


def test_rows_of_one_element_are_left_alone() -> None:
    for form in (Form.PARTS, Form.EXCHANGE):
        assert split_function(function_of(sum_rows, (normal(5, 1),)), form) is None
