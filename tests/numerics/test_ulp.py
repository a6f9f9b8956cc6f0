"""Spacing and distances of every float type against a walk through representable values."""

from __future__ import annotations

import math

import pytest
import torch

from tilesmith.numerics.tolerance import (
    max_exponent,
    min_exponent,
    smallest_spacing,
    ulp_at,
    ulp_distance,
    ulp_error,
    unit_roundoff,
)

FLOATS = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]
NARROW = {torch.float16: torch.int16, torch.bfloat16: torch.int16}
TINY = {torch.float8_e4m3fn: torch.int8, torch.float8_e5m2: torch.int8}


def finite_positive(dtype: torch.dtype) -> torch.Tensor:
    """All positive finite values of an 8- or 16-bit type in rising order, as float64."""
    view = (NARROW | TINY)[dtype]
    bits = torch.arange(0, torch.iinfo(view).max + 1, dtype=torch.int64).to(view)
    values = bits.view(dtype).to(torch.float64)
    return values[torch.isfinite(values)]


@pytest.mark.parametrize("dtype", [*NARROW, *TINY])
def test_spacing_equals_the_step_to_the_next_value(dtype):
    values = finite_positive(dtype)
    steps = values[1:] - values[:-1]
    assert torch.equal(ulp_at(values[:-1], dtype), steps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_spacing_of_wide_types_equals_nextafter(dtype):
    finfo = torch.finfo(dtype)
    marks = [0.0, smallest_spacing(dtype), finfo.smallest_normal, 1.0, 1.5, 2.0, 3.0, 1e30]
    values = torch.tensor(marks, dtype=dtype)
    steps = torch.nextafter(values, torch.full_like(values, math.inf)) - values
    assert torch.equal(ulp_at(values, dtype), steps.to(torch.float64))


@pytest.mark.parametrize("dtype", FLOATS)
def test_spacing_ignores_the_sign_and_is_capped_at_the_top(dtype):
    values = torch.tensor([3.0, torch.finfo(dtype).max], dtype=torch.float64)
    assert torch.equal(ulp_at(values, dtype), ulp_at(-values, dtype))
    beyond = torch.tensor([math.inf, -math.inf, math.nan], dtype=torch.float64)
    assert torch.equal(ulp_at(beyond, dtype), ulp_at(values[1:], dtype).expand(3))


@pytest.mark.parametrize("dtype", FLOATS)
def test_exponents_bracket_the_normal_range(dtype):
    finfo = torch.finfo(dtype)
    assert math.ldexp(1.0, min_exponent(dtype)) == finfo.smallest_normal
    assert math.ldexp(1.0, max_exponent(dtype)) <= finfo.max
    assert finfo.max / 2 < math.ldexp(1.0, max_exponent(dtype))


@pytest.mark.parametrize("dtype", FLOATS[1:])
def test_rounding_one_plus_half_epsilon_errs_by_the_unit_roundoff(dtype):
    exact = torch.tensor([1.0 + unit_roundoff(dtype)], dtype=torch.float64)
    rounded = exact.to(dtype).to(torch.float64)
    assert float((rounded - exact).abs()) == unit_roundoff(dtype)


@pytest.mark.parametrize("dtype", FLOATS[1:])
def test_correct_rounding_is_at_most_half_an_ulp_off(dtype):
    generator = torch.Generator().manual_seed(1)
    exact = torch.randn(4000, dtype=torch.float64, generator=generator) * 4
    error = ulp_error(exact.to(dtype), exact, dtype)
    assert float(error.max()) <= 0.5
    assert float(error.max()) > 0.4


@pytest.mark.parametrize("dtype", [*NARROW, *TINY])
def test_distance_counts_representable_values(dtype):
    values = finite_positive(dtype).to(dtype)
    rank = torch.arange(len(values))
    zero = torch.zeros_like(values)
    assert torch.equal(ulp_distance(values, zero), rank)
    negated = (-values.to(torch.float64)).to(dtype)
    assert torch.equal(ulp_distance(values, negated), 2 * rank)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distance_of_neighbours_is_one_across_binades_and_zero(dtype):
    values = torch.tensor([-2.0, -1.0, -0.0, 0.0, 1.0, 4.0], dtype=dtype)
    above = torch.nextafter(values, torch.full_like(values, math.inf))
    assert ulp_distance(values, above).tolist() == [1] * 6
    assert ulp_distance(above, values).tolist() == [1] * 6


def test_the_two_zeros_are_one_value():
    assert ulp_distance(torch.tensor([0.0]), torch.tensor([-0.0])).tolist() == [0]


def test_nan_is_near_nothing_but_nan():
    nan, one = torch.tensor([math.nan]), torch.tensor([1.0])
    assert ulp_distance(nan, nan).tolist() == [0]
    assert ulp_distance(nan, one).tolist() == [torch.iinfo(torch.int64).max]
    assert ulp_distance(one, nan).tolist() == [torch.iinfo(torch.int64).max]


def test_distance_between_opposite_doubles_saturates():
    left = torch.tensor([torch.finfo(torch.float64).max], dtype=torch.float64)
    assert ulp_distance(left, -left).tolist() == [torch.iinfo(torch.int64).max]
    assert ulp_distance(-left, left).tolist() == [torch.iinfo(torch.int64).max]


def test_distance_of_different_types_is_refused():
    with pytest.raises(TypeError, match="one float type"):
        ulp_distance(torch.ones(1), torch.ones(1, dtype=torch.float16))


@pytest.mark.parametrize("shape", [(0,), (), (3, 0, 2)])
def test_empty_and_scalar_shapes_are_kept(shape):
    values = torch.ones(shape)
    assert ulp_at(values, torch.float32).shape == values.shape
    assert ulp_distance(values, values).shape == values.shape


def test_non_contiguous_tensors_are_measured_in_place():
    values = torch.arange(12.0).view(3, 4).t()
    above = torch.nextafter(values, torch.full_like(values, math.inf))
    assert int(ulp_distance(values, above).max()) == 1
