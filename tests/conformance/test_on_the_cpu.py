"""Every conformance case on the CPU: whole tiles, and tiles so small that the last is partial."""

from __future__ import annotations

import pytest

from tests.conformance.all_cases import CASES
from tests.conformance.case import Case

FREE_SHAPED = [case for case in CASES if not case.is_shaped_by_config]
DYNAMIC = [case for case in CASES if not case.needs_static_shapes]


@pytest.mark.parametrize("case", FREE_SHAPED, ids=str)
def test_plain_call(case: Case) -> None:
    case.check(case.kernel(*case.make_args()))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_small_tiles(case: Case) -> None:
    args = case.make_args()
    case.check(case.kernel.bind(args).compile_config(case.config)(*args))


@pytest.mark.parametrize("case", DYNAMIC, ids=str)
def test_runtime_sizes(case: Case) -> None:
    args = case.make_args()
    case.check(case.dynamic_kernel.bind(args).compile_config(case.config)(*args))


def test_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
