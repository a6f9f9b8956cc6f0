"""Rows that are loaded give the same when several programs share them; others are left alone."""

from __future__ import annotations

from collections.abc import Callable
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
from examples.softmax import softmax
from examples.sum import sum_rows
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
from tilesmith.ir.ops.control_flow import Grid
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
    return {"loss": terms.sum(-1)}


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
