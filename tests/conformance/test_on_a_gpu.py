"""Every conformance case on a real device, with small tiles and with the default config."""

from __future__ import annotations

import pytest
import torch

from tests.conformance.all_cases import CASES as ALL_CASES
from tests.conformance.case import Case

pytestmark = pytest.mark.device
HOST_ONLY = ("clamped_bits",)
"""The hardware's maximum of two zeros is +0.0, whichever comes first."""
CASES = [case for case in ALL_CASES if case.name not in HOST_ONLY]
FREE_SHAPED = [case for case in CASES if not case.is_shaped_by_config]


def make_args(case: Case) -> tuple[object, ...]:
    """The case's inputs, made where the kernel shall run, those in closures too."""
    with torch.device("cuda"):
        return case.make_args()


@pytest.mark.parametrize("case", FREE_SHAPED, ids=str)
def test_default_config(case: Case) -> None:
    case.check(case.kernel(*make_args(case)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_small_tiles(case: Case) -> None:
    args = make_args(case)
    case.check(case.kernel.bind(args).compile_config(case.config)(*args))


@pytest.mark.parametrize("case", FREE_SHAPED, ids=str)
def test_a_second_launch_takes_the_short_way(case: Case) -> None:
    for _ in range(2):
        case.check(case.kernel(*make_args(case)))
