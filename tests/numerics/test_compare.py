"""check_against: what passes, what is refused, and what the message says."""

from __future__ import annotations

import math

import pytest
import torch

from tilesmith.numerics.compare import AccuracyError, check_against, measure_error

FLOATS = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


def doubles(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_correctly_rounded_result_passes_with_half_an_ulp(dtype):
    exact = torch.randn(500, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    report = check_against(exact.to(dtype), exact)
    assert report.max_ulp <= 0.5
    assert report.num_beyond == 0


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_element_a_few_ulps_off_fails_and_is_named(dtype):
    exact = torch.linspace(1.0, 1.9, 7 * 5, dtype=torch.float64).view(7, 5)
    wrong = exact.to(dtype, copy=True)
    wrong[4, 3] = float(exact[4, 3]) * (1 + 64 * torch.finfo(dtype).eps)
    with pytest.raises(AccuracyError, match=r"worst element \[4, 3\]") as caught:
        check_against(wrong, exact)
    assert "1 of 35 elements" in str(caught.value)
    assert repr(float(wrong[4, 3])) in str(caught.value)
    assert repr(float(exact[4, 3])) in str(caught.value)


def test_a_narrow_bias_within_each_allowance_fails_by_the_norm():
    exact = torch.full((1000,), 1.0, dtype=torch.float64)
    biased = (exact * (1 + 14 * 2.0**-24)).to(torch.float32)
    report = measure_error(biased, exact)
    assert report.num_beyond == 0
    assert not report.is_within_budget
    with pytest.raises(AccuracyError, match="relative norm"):
        check_against(biased, exact)


def test_the_accuracy_error_is_an_assertion():
    assert issubclass(AccuracyError, AssertionError)


def test_shapes_must_match():
    with pytest.raises(AccuracyError, match=r"got \(2, 3\), expected \(3, 2\)"):
        check_against(torch.zeros(2, 3), torch.zeros(3, 2, dtype=torch.float64))


def test_a_broadcastable_shape_is_not_enough():
    with pytest.raises(AccuracyError, match="shapes differ"):
        check_against(torch.zeros(3, 1), torch.zeros(3, dtype=torch.float64))


def test_the_dtype_must_be_the_one_asked_for():
    with pytest.raises(AccuracyError, match="dtypes differ"):
        check_against(torch.zeros(2), torch.zeros(2, dtype=torch.float64), dtype=torch.float16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_low_precision_reference_is_refused(dtype):
    with pytest.raises(TypeError, match="float64"):
        check_against(torch.zeros(2, dtype=dtype), torch.zeros(2, dtype=dtype))


def test_float_against_integer_is_a_type_mismatch():
    with pytest.raises(AccuracyError, match="dtypes differ"):
        check_against(torch.zeros(2), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(AccuracyError, match="dtypes differ"):
        check_against(torch.zeros(2, dtype=torch.int32), torch.zeros(2, dtype=torch.float64))
    with pytest.raises(AccuracyError, match="dtypes differ"):
        check_against(torch.zeros(2, dtype=torch.int32), torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize("shape", [(0,), (4, 0), (0, 3, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_empty_tensors_pass(shape, dtype):
    reference = torch.zeros(shape, dtype=torch.float64 if dtype.is_floating_point else dtype)
    report = check_against(torch.zeros(shape, dtype=dtype), reference, reduction_length=0)
    assert report.num_elements == 0
    assert report.worst_index is None


def test_a_scalar_is_compared():
    check_against(torch.tensor(1.5), torch.tensor(1.5, dtype=torch.float64))
    with pytest.raises(AccuracyError, match=r"worst element \[\]"):
        check_against(torch.tensor(1.5), torch.tensor(2.5, dtype=torch.float64))


def test_nan_matches_nan_and_nothing_else():
    check_against(torch.tensor([math.nan, 1.0]), doubles(math.nan, 1.0))
    with pytest.raises(AccuracyError, match=r"\[0\]: got 1.0, expected nan"):
        check_against(torch.tensor([1.0, 1.0]), doubles(math.nan, 1.0))
    with pytest.raises(AccuracyError, match=r"\[1\]: got nan, expected 1.0"):
        check_against(torch.tensor([math.nan, math.nan]), doubles(math.nan, 1.0))


def test_infinities_match_by_sign():
    check_against(torch.tensor([math.inf, -math.inf]), doubles(math.inf, -math.inf))
    with pytest.raises(AccuracyError, match=r"got -inf, expected inf"):
        check_against(torch.tensor([-math.inf]), doubles(math.inf))
    with pytest.raises(AccuracyError, match=r"expected inf"):
        check_against(torch.tensor([torch.finfo(torch.float32).max]), doubles(math.inf))
    with pytest.raises(AccuracyError, match=r"got inf"):
        check_against(torch.tensor([math.inf]), doubles(1.0))


def test_nan_elsewhere_does_not_hide_an_error():
    actual = torch.ones(100)
    actual[3], actual[50] = math.nan, 1.5
    reference = torch.ones(100, dtype=torch.float64)
    reference[3] = math.nan
    with pytest.raises(AccuracyError, match=r"\[50\]"):
        check_against(actual, reference)


@pytest.mark.parametrize("dtype", FLOATS[1:])
def test_a_reference_beyond_the_range_expects_what_rounding_gives(dtype):
    exact = doubles(1e300)
    check_against(exact.to(dtype), exact)
    with pytest.raises(AccuracyError):
        check_against(torch.ones(1).to(dtype), exact)


def test_flushing_a_subnormal_to_zero_is_allowed_and_more_is_not():
    check_against(torch.tensor([0.0, 1.0]), doubles(1e-39, 1.0))
    with pytest.raises(AccuracyError, match=r"\[0\]"):
        check_against(torch.tensor([0.0, 1.0]), doubles(1e-37, 1.0))


def test_a_missed_element_among_zeros_is_found():
    with pytest.raises(AccuracyError, match=r"expected 0\.0"):
        check_against(torch.tensor([0.0, 1e-6]), doubles(0.0, 0.0))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool])
def test_exact_types_must_be_equal(dtype):
    reference = torch.tensor([0, 1, 1, 0]).to(dtype)
    check_against(reference.clone(), reference)
    wrong = reference.clone()
    wrong[2] = 0
    with pytest.raises(AccuracyError, match=r"worst element \[2\]"):
        check_against(wrong, reference)


def test_large_integers_one_apart_differ():
    reference = torch.tensor([2**62], dtype=torch.int64)
    with pytest.raises(AccuracyError, match="1 of 1"):
        check_against(reference + 1, reference)


def test_cancellation_is_allowed_only_where_declared():
    left = torch.randn(1000, generator=torch.Generator().manual_seed(3))
    exact = left.double() * left.double() - left.double().square().mean()
    actual = left * left - (left * left).mean()
    check_against(actual, exact, reduction_length=1000)
    with pytest.raises(AccuracyError):
        check_against(actual, exact)


def test_strided_results_are_indexed_logically():
    exact = torch.arange(12.0, dtype=torch.float64).view(3, 4).t()
    actual = exact.float().t().contiguous().t()
    actual[1, 2] += 1
    with pytest.raises(AccuracyError, match=r"worst element \[1, 2\]"):
        check_against(actual, exact)


def test_results_that_require_grad_are_accepted():
    actual = torch.ones(3, requires_grad=True) * 2
    check_against(actual, torch.full((3,), 2.0, dtype=torch.float64))


def test_complex_results_are_refused():
    with pytest.raises(TypeError, match="complex"):
        check_against(torch.zeros(1, dtype=torch.complex64), torch.zeros(1, dtype=torch.float64))


def test_the_report_carries_the_measured_figures():
    report = measure_error(torch.tensor([3.0, 4.0]), doubles(3.0, 4.5))
    assert report.max_abs == 0.5
    assert report.max_ulp == 0.5 / 2.0**-21
    assert report.relative_norm == pytest.approx(0.5 / math.hypot(3.0, 4.5))
    assert report.worst_index == (1,)
    assert (report.worst_actual, report.worst_reference) == (4.0, 4.5)
