"""Compensated sums and products against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.numerics.judged_kernels import reference_of
from tilesmith.numerics.oracle import compensated_product, compensated_sum, exact_product


def wild(*shape: int, seed: int = 0) -> torch.Tensor:
    """Numbers of many magnitudes, whose sums cancel."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, dtype=torch.float64, generator=generator)
    return values * 10.0 ** torch.randint(-8, 9, shape, generator=generator)


def allowed(terms: list[Fraction], exact: Fraction) -> Fraction:
    """Half an ulp of the result, and what is lost of error terms: n u^2 of all magnitudes."""
    u = Fraction(2) ** -53
    return u * abs(exact) + len(terms) * 2 * u**2 * sum(map(abs, terms))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 257])
def test_a_sum_is_rounded_once(length):
    values = wild(length, 3)
    # The first term again with the other sign: without care nothing of the rest would be left.
    values = torch.cat([values, -values[:1] * (1 + 2.0**-50)])
    for column in range(3):
        terms = list(map(Fraction, values[:, column].tolist()))
        error = Fraction(float(compensated_sum(values, 0)[column])) - sum(terms)
        assert abs(error) <= allowed(terms, Fraction(sum(terms)))


def test_a_product_and_its_error_are_exact():
    left, right = wild(100), wild(100, seed=1)
    product, error = exact_product(left, right)
    for a, b, p, e in zip(*(x.tolist() for x in (left, right, product, error))):
        assert Fraction(a) * Fraction(b) == Fraction(p) + Fraction(e)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("has_acc", [False, True])
def test_a_product_of_matrices_is_rounded_once(batch, has_acc):
    lhs, rhs = wild(*batch, 3, 17), wild(*batch, 17, 2, seed=1)
    acc = wild(*batch, 3, 2, seed=2) if has_acc else None
    found = compensated_product(lhs, rhs, acc)
    start = torch.zeros_like(found) if acc is None else acc
    for index in torch.cartesian_prod(*(torch.arange(n) for n in found.shape)).tolist():
        *outer, i, j = index
        rows, columns = lhs[(*outer, i)].tolist(), rhs[(*outer, slice(None), j)].tolist()
        terms = [Fraction(a) * Fraction(b) for a, b in zip(rows, columns)]
        terms.append(Fraction(float(start[tuple(index)])))
        error = Fraction(float(found[tuple(index)])) - sum(terms)
        assert abs(error) <= allowed(terms, Fraction(sum(terms)))


def test_infinities_are_summed_as_usual():
    assert float(compensated_sum(torch.tensor([math.inf, 1.0]).double(), 0)) == math.inf
    both = torch.tensor([math.inf, -math.inf, 1.0]).double()
    assert math.isnan(float(compensated_sum(both, 0)))


@helion.kernel(backend="reference")
def sums(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        acc = hl.zeros([tile], dtype=torch.float64)
        for inner in hl.tile(x.size(1)):
            acc = acc + x[tile, inner].sum(-1)
        out[tile] = acc
    return out


def test_the_truth_of_a_kernel_in_fp64_is_better_than_fp64():
    x = wild(4, 100)
    x[:, -1] = -x[:, :-1].sum(1)
    rows = [list(map(Fraction, row)) for row in x.tolist()]
    out = torch.empty(4, dtype=torch.float64)
    careful, _ = reference_of(sums, x, out, blocks=[2, 8], is_compensated=True)
    plain, _ = reference_of(sums, x, out, blocks=[2, 8])
    for terms, good, bad in zip(
        rows, careful.tensors["out"].truth.tolist(), plain.tensors["out"].truth.tolist()
    ):
        limit = allowed(terms, Fraction(sum(terms)))
        assert abs(Fraction(good) - sum(terms)) <= limit < abs(Fraction(bad) - sum(terms))
