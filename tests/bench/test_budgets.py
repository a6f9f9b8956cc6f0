"""Budgets of operators whose results are rounded on the way: right ones pass, mistakes do not.

What a GPU rounds is made on the CPU, where nothing else is wrong.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from benchmarks.suites import suite
from benchmarks.suites.narrow_products import fp8_steps, scaled_fp8
from examples import fp8_gemm
from tests.fp8_units import STEP, fp8_product
from tilesmith.bench.case import Arguments
from tilesmith.bench.reference import Judge, Reference, work_out
from tilesmith.numerics.compare import ErrorReport, measure_by
from tilesmith.numerics.tolerance import Budget

CPU = torch.device("cpu")
BY_NAME = {operator.name: operator for operator in suite().operators}
HEADS = {"causal_attention": (1, 64, 512, 128), "flex_attention": (1, 64, 8, 512, 128)}


@cache
def attention_case(name: str) -> tuple[Arguments, Reference]:
    """Fewer positions than on a GPU; with small late values outputs are as unlike as with many."""
    make: Any = BY_NAME[name].inputs[0].make
    made = make.func(HEADS[name], CPU, torch.bfloat16)
    made[2][..., 8:, :] *= 2**-6
    return made, work_out(BY_NAME[name], made)


def rounded_attention(q: Any, k: Any, v: Any, *others: Any, mistake: str = "") -> torch.Tensor:
    """Causal attention whose weights are rounded before the second product, as all round them."""
    group = q.size(1) // k.size(1)
    keys, values = (x.float().repeat_interleave(group, 1) for x in (k, v))
    scores = q.float() @ keys.transpose(-1, -2) / math.sqrt(q.size(-1))
    hidden = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(2 if mistake == "mask" else 1)
    scores = scores.masked_fill(hidden, float("-inf"))
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    total = weights.sum(-1, keepdim=True)
    if mistake == "a block of keys":
        weights[..., 128:144] = 0.0
    return (weights.bfloat16().float() @ values / total).bfloat16()


def judged(name: str, result: torch.Tensor, **changes: Any) -> str:
    operator, (made, reference) = BY_NAME[name], attention_case(name)
    roundings = operator.intermediates(torch.bfloat16, "cuda", made)
    return Judge(operator, made, replace(reference, **changes), roundings).judge(result).problem


@pytest.mark.parametrize("name", HEADS)
def test_rows_of_few_keys_round_as_much_as_they_hold(name: str) -> None:
    """38 of the 33.5 million elements of four batches of 2048 were refused on an H200."""
    result = rounded_attention(*attention_case(name)[0])
    assert not judged(name, result)
    assert "beyond the budget" in judged(name, result, sizes=[])


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("mistake", ["mask", "a block of keys"])
def test_a_mistake_in_attention_is_refused(name: str, mistake: str) -> None:
    result = rounded_attention(*attention_case(name)[0], mistake=mistake)
    assert "beyond the budget" in judged(name, result)


def test_sizes_tell_which_elements_may_be_off() -> None:
    budget = Budget(torch.float32, 8, (torch.bfloat16,))
    sizes = torch.tensor([1.0, 100.0], dtype=torch.float64)
    exact = torch.ones(2, dtype=torch.float64)
    off = torch.tensor([1.5, 1.5])
    report = measure_by(budget, off, exact, sizes)
    assert report.num_beyond == 1
    assert report.worst_index == (0,)


K = 4096


@pytest.fixture(scope="module")
def fp8_case() -> tuple[Arguments, torch.Tensor]:
    """Arguments of a long product, and it as fp8 tensor cores make it."""
    made = scaled_fp8((48, K, 48), CPU, torch.float16)
    return made, fp8_product(made[0].float(), made[1].float()).double()


def report_of(made: Arguments, product: torch.Tensor, factor: float = 1.0) -> ErrorReport:
    *_, x_scale, y_scale = made
    actual = (product * (x_scale * y_scale).double() * factor).half()
    budget = Budget(torch.float16, K, (), fp8_steps(made[0]))
    return measure_by(budget, actual, fp8_gemm.reference(*made))


def test_sums_of_fp8_tensor_cores_are_far_from_the_limit(fp8_case: Any) -> None:
    """The farthest of millions is less than twice as far as that of two thousand."""
    report = report_of(*fp8_case)
    assert report.is_within_budget
    assert abs(report.worst_actual - report.worst_reference) < report.worst_allowed / 2
    assert report.relative_norm < report.budget.relative_norm / 2  # type: ignore[union-attr]


def test_without_cut_sums_they_would_be_refused(fp8_case: Any) -> None:
    made, product = fp8_case
    actual = (product * (made[2] * made[3]).double()).half()
    assert not measure_by(
        Budget(torch.float16, K), actual, fp8_gemm.reference(*made)
    ).is_within_budget


def test_a_missing_step_or_a_wrong_scale_of_an_fp8_product_is_refused(fp8_case: Any) -> None:
    made, product = fp8_case
    x, y, *_ = made
    last = x.double()[:, -STEP:] @ y.double()[-STEP:]
    assert not report_of(made, product - last).is_within_budget
    for factor in (0.99, 1.01):
        assert not report_of(made, product, factor).is_within_budget
