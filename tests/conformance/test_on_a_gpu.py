"""Every conformance case on a real device, with small tiles and with the default config."""

from __future__ import annotations

import pytest
import torch

from tests.conformance.all_cases import CASES
from tests.conformance.case import Case

pytestmark = pytest.mark.device
AS_EAGER_THERE = ("clamped_bits",)
"""Cases whose right answer is what eager gives on the same device: zeros of either sign."""
FREE_SHAPED = [case for case in CASES if not case.is_shaped_by_config]


def make_args(case: Case) -> tuple[object, ...]:
    """The case's inputs, made where the kernel shall run, those in closures too."""
    with torch.device("cuda"):
        return case.make_args()


def check(case: Case, actual: object) -> None:
    """Compare with the reference, worked out on the host unless the device decides."""
    with torch.device("cuda" if case.name in AS_EAGER_THERE else "cpu"):
        case.check(actual)


@pytest.mark.parametrize("case", FREE_SHAPED, ids=str)
def test_default_config(case: Case) -> None:
    check(case, case.kernel(*make_args(case)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_small_tiles(case: Case) -> None:
    args = make_args(case)
    check(case, case.kernel.bind(args).compile_config(case.config)(*args))


@pytest.mark.parametrize("case", FREE_SHAPED, ids=str)
def test_a_second_launch_takes_the_short_way(case: Case) -> None:
    for _ in range(2):
        check(case, case.kernel(*make_args(case)))
