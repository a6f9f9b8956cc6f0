"""The norm that the error of a product may have whose left factor is rounded first."""

from __future__ import annotations

import pytest
import torch

from tests.device.warp_role_cases import GRADIENTS, Case, check_gradients, make_args
from tilesmith.numerics.rounded_products import allowed_norm

BF16, F16 = torch.bfloat16, torch.float16


def factors(*shape: int, columns: int = 64, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(shape, generator=generator, dtype=torch.double)
    right = torch.randn(*shape[:-2], shape[-1], columns, generator=generator, dtype=torch.double)
    return left, right.bfloat16().double()


def error_of(left: torch.Tensor, right: torch.Tensor, dtype: torch.dtype) -> float:
    """What both roundings leave, and nothing else."""
    rounded = (left.to(dtype).double() @ right).to(dtype).double()
    return float((rounded - left @ right).norm())


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (3, 2, 2), (3, 16, 5), (2, 65, 65)], ids=str)
def test_roundings_are_allowed(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for seed in range(300):
        left, right = factors(*shape, seed=seed)
        assert error_of(left, right, dtype) <= allowed_norm(left, right, dtype)


@pytest.mark.parametrize("kind", ["queries", "keys and values", "causal queries"])
def test_gradients_of_few_queries_by_the_kernels_of_a_cpu(kind: str) -> None:
    for length in (1, 2, 3, 65):
        case = Case(kind, length, 64)
        found = GRADIENTS[case.gradient or ""][0](*make_args(case, "cpu"))
        listed = list(found) if isinstance(found, tuple) else [found]
        check_gradients(case, listed, "cpu")
        # A single key has no gradient that could be wrong.
        for number in range(len(listed) if length > 1 else 0):
            wrong = [*listed]
            wrong[number] = wrong[number] * 1.01
            with pytest.raises(AssertionError):
                check_gradients(case, wrong, "cpu")


def test_few_roundings_may_all_be_as_far_off_as_one() -> None:
    # Halfway between two numbers of bfloat16, so that every weight is off by the unit roundoff.
    left, right = factors(3, 1, 2)
    left = torch.full_like(left, 1 + 2**-8)
    error = error_of(left, right, BF16)
    # The limit for many elements that attention's gradients once had for two queries.
    assert error > 4e-3 * (left @ right).norm()
    assert error <= allowed_norm(left, right, BF16)


def test_many_roundings_average_out() -> None:
    left, right = factors(4, 128, 128)
    allowed = allowed_norm(left, right, BF16) / float((left @ right).norm())
    assert 2**-8 * (2 / 3) ** 0.5 < allowed < 0.9 * 2**-8


@pytest.mark.parametrize("columns", [64, 128])
def test_one_bit_less_is_noticed(columns: int) -> None:
    left, right = factors(4, 256, 256, columns=columns)
    # Seven bits, where bfloat16 has eight.
    mantissa, exponent = torch.frexp(left)
    coarse = torch.ldexp(torch.round(mantissa * 2**7) / 2**7, exponent)
    assert error_of(coarse, right, BF16) <= allowed_norm(coarse, right, BF16)
    off = (coarse @ right).to(BF16).double() - left @ right
    assert off.norm() > allowed_norm(left, right, BF16)


def test_numbers_below_the_smallest_normal_one_are_as_far_off_as_it() -> None:
    left, right = factors(1, 2)
    left = left * 1e-7
    error = error_of(left, right, F16)
    assert error > 0.05 * (left @ right).norm()
    assert error <= allowed_norm(left, right, F16)


def test_nothing_may_be_off_where_nothing_is() -> None:
    left, right = factors(2, 3)
    assert allowed_norm(left * 0, right, BF16) == 0.0
