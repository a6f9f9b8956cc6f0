"""Statistics of errors against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from tilesmith.numerics.doctor.errors import LOWEST, WRONG, Yardstick
from tilesmith.numerics.oracle import Reference, ReferenceTensor

FORMATS = {
    torch.float32: (23, -126),
    torch.float16: (10, -14),
    torch.bfloat16: (7, -126),
    torch.float8_e4m3fn: (3, -6),
}


def measured(got: torch.Tensor, truth: torch.Tensor, written=None):
    written = torch.ones_like(truth, dtype=torch.bool) if written is None else written
    known = ReferenceTensor(truth, truth.to(got.dtype), written)
    yardstick = Yardstick(Reference({"out": known}, is_complete=False), num_worst=2)
    (found,) = yardstick.measure("other", {"out": got})
    return found


def exact_ulps(got: float, truth: float, dtype: torch.dtype) -> Fraction:
    fraction_bits, lowest = FORMATS[dtype]
    exponent = max(math.frexp(truth)[1] - 1, lowest) if truth else lowest
    spacing = Fraction(2) ** (exponent - fraction_bits)
    return abs(Fraction(got) - Fraction(truth)) / spacing


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("scale", [1.0, 2.0**-7])
def test_statistics_are_those_of_exact_fractions(dtype, scale):
    generator = torch.Generator().manual_seed(3)
    truth = torch.randn(101, dtype=torch.float64, generator=generator) * scale
    got = (truth * (1 + 0.1 * torch.randn(101, dtype=torch.float64, generator=generator))).to(dtype)
    truth[:3], got[:3] = 0.0, 0.0
    pairs = list(zip(got.double().tolist(), truth.tolist()))
    ulps = sorted(exact_ulps(a, b, dtype) for a, b in pairs)
    found = measured(got, truth)
    assert found.max_ulp == float(ulps[-1])
    assert found.median_ulp == float(ulps[50])
    assert found.p99_ulp == float(ulps[99])
    assert found.max_abs == float(max(abs(Fraction(a) - Fraction(b)) for a, b in pairs))
    squared = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs)
    norm = math.sqrt(squared / sum(Fraction(b) ** 2 for _, b in pairs))
    assert found.relative_norm == pytest.approx(norm, rel=1e-12)
    for bucket, count in found.histogram.items():
        low = Fraction(2) ** (bucket - 1) if bucket > LOWEST else -1
        assert count == sum(low < ulp <= Fraction(2) ** bucket for ulp in ulps)


def test_exact_powers_of_two_belong_to_the_bucket_they_close():
    truth = torch.ones(4, dtype=torch.float64)
    steps = torch.tensor([0, 1, 2, 3], dtype=torch.int32)
    got = (torch.ones(4).view(torch.int32) + steps).view(torch.float32)
    assert measured(got, truth).histogram == {LOWEST: 1, 0: 1, 1: 1, 2: 1}


def test_only_elements_whose_truth_is_known_count():
    truth = torch.tensor([1.0, 99.0, 3.0], dtype=torch.float64)
    got = torch.tensor([1.0, 2.0, 4.0])
    found = measured(got, truth, torch.tensor([True, False, True]))
    assert (found.num_elements, found.max_abs) == (2, 1.0)
    assert found.worst[0].index == (2,)


def test_nan_and_infinity_out_of_place_are_infinitely_wrong():
    truth = torch.tensor([1.0, math.nan, math.inf, 1e39], dtype=torch.float64)
    right = torch.tensor([1.0, math.nan, math.inf, math.inf])
    assert measured(right, truth).max_ulp == 0.0
    wrong = torch.tensor([math.nan, 1.0, math.inf, math.inf])
    found = measured(wrong, truth)
    assert found.max_ulp == math.inf
    assert found.histogram[WRONG] == 2
    assert not found.is_right


def test_a_result_of_another_type_is_measured_in_ulps_of_the_kernels_type():
    truth = torch.tensor([1.0, 2.0], dtype=torch.float64)
    known = ReferenceTensor(truth, truth.bfloat16(), torch.ones(2, dtype=torch.bool))
    yardstick = Yardstick(Reference({"out": known}, is_complete=False), num_worst=2)
    got = torch.tensor([1.0 + 2**-9, 2.0])
    (found,) = yardstick.measure("wide", {"out": got})
    assert (found.max_ulp, found.dtype) == (0.25, torch.bfloat16)


def test_integers_are_counted_by_how_far_they_are_apart():
    truth = torch.tensor([1, 2, 2**60])
    known = ReferenceTensor(truth, truth, torch.ones(3, dtype=torch.bool))
    yardstick = Yardstick(Reference({"out": known}, is_complete=False), num_worst=2)
    (found,) = yardstick.measure("other", {"out": torch.tensor([1, 4, 2**60 + 1])})
    assert (found.max_ulp, found.max_abs) == (2.0, 2.0)
    assert [worst.index for worst in found.worst] == [(1,), (2,)]
    assert not found.is_right


def test_an_empty_result_has_no_errors():
    found = measured(torch.empty(0), torch.empty(0, dtype=torch.float64))
    assert (found.max_ulp, found.num_elements, found.worst) == (0.0, 0, ())
