"""Budgets hold for honest low-precision arithmetic and are too small for a wrong one."""

from __future__ import annotations

import math

import pytest
import torch

from tilesmith.numerics.tolerance import Budget, derive_budget, rms

HALVES = [torch.float16, torch.bfloat16]


def sequential_sum(terms: torch.Tensor) -> torch.Tensor:
    """Sum over the last axis in the tensor's own type, one term after another."""
    total = torch.zeros_like(terms[..., 0])
    for position in range(terms.shape[-1]):
        total = total + terms[..., position]
    return total


@pytest.mark.parametrize("length", [2, 17, 256, 1000])
@pytest.mark.parametrize("offset", [0.0, 2.0])
def test_a_sequential_fp32_sum_stays_within_its_budget(length, offset):
    generator = torch.Generator().manual_seed(length)
    terms = torch.randn(2000, length, generator=generator) + offset
    exact = terms.to(torch.float64).sum(-1)
    error = (sequential_sum(terms).to(torch.float64) - exact).abs()
    assert bool((error <= derive_budget(torch.float32, length).allowed(exact)).all())


@pytest.mark.parametrize("dtype", HALVES)
def test_a_sum_carried_in_half_precision_exceeds_the_budget(dtype):
    generator = torch.Generator().manual_seed(5)
    terms = torch.rand(200, 512, generator=generator).to(dtype)
    exact = terms.to(torch.float64).sum(-1)
    error = (sequential_sum(terms).to(torch.float64) - exact).abs()
    assert bool((error > derive_budget(dtype, 512).allowed(exact)).any())


def test_tf32_inputs_exceed_the_budget_of_an_exact_fp32_product():
    generator = torch.Generator().manual_seed(6)
    left = torch.randn(64, 256, generator=generator)
    right = torch.randn(256, 64, generator=generator)
    exact = left.double() @ right.double()
    # float16 has tf32's significand; these values are far inside its range.
    rounded = left.half().double() @ right.half().double()
    error = (rounded - exact).abs()
    assert bool((error > derive_budget(torch.float32, 256).allowed(exact)).any())
    declared = derive_budget(torch.float32, 256, [torch.float16, torch.float16])
    assert bool((error <= declared.allowed(exact)).all())


@pytest.mark.parametrize("dtype", HALVES)
def test_a_rounded_intermediate_needs_to_be_declared_only_for_wider_outputs(dtype):
    generator = torch.Generator().manual_seed(7)
    left = torch.rand(64, 128, generator=generator)
    right = torch.randn(128, 64, generator=generator)
    exact = left.double() @ right.double()
    error = (left.to(dtype).double() @ right.double() - exact).abs()
    assert bool((error > derive_budget(torch.float32, 128).allowed(exact)).any())
    assert bool((error <= derive_budget(torch.float32, 128, dtype).allowed(exact)).all())


def test_elementwise_budgets_do_not_depend_on_other_elements():
    alone = torch.tensor([1.0], dtype=torch.float64)
    beside = torch.tensor([1.0, 1e9], dtype=torch.float64)
    budget = derive_budget(torch.float32)
    assert float(budget.allowed(alone)[0]) == float(budget.allowed(beside)[0])


def test_budgets_grow_with_the_square_root_of_the_length():
    short, long = derive_budget(torch.float32, 100), derive_budget(torch.float32, 10_000)
    assert long.scale_coefficient == pytest.approx(10 * short.scale_coefficient)


def test_wider_types_have_smaller_budgets():
    types = [
        torch.float8_e5m2,
        torch.float8_e4m3fn,
        torch.bfloat16,
        torch.float16,
        torch.float32,
        torch.float64,
    ]
    norms = [derive_budget(dtype, 64).relative_norm for dtype in types]
    assert norms == sorted(norms, reverse=True)
    assert len(set(norms)) == len(norms)


def test_length_zero_is_the_elementwise_budget_and_negative_is_refused():
    assert derive_budget(torch.float32, 0) == Budget(torch.float32, 1)
    with pytest.raises(ValueError, match="negative"):
        derive_budget(torch.float32, -1)


def test_special_values_do_not_reach_the_allowance():
    reference = torch.tensor([1.0, math.nan, math.inf, -math.inf], dtype=torch.float64)
    allowed = derive_budget(torch.float32, 8).allowed(reference)
    assert bool(torch.isfinite(allowed).all())


@pytest.mark.parametrize("values", [[], [0.0, 0.0]])
def test_root_mean_square_of_nothing_is_zero(values):
    assert rms(torch.tensor(values, dtype=torch.float64)) == 0.0


def test_root_mean_square_survives_the_largest_doubles():
    largest = torch.finfo(torch.float64).max
    assert rms(torch.tensor([largest, largest], dtype=torch.float64)) == largest
