"""The Triton code of every conformance case compiles, and computes the same when interpreted."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from tests.conformance.all_cases import CASES
from tests.conformance.case import Case
from tilesmith.backends.triton.build import compile_artifact

ROOT = Path(__file__).parents[2]
TARGET = "cuda:90"
NUM_SHARES = 8


# Every day another share of what takes long; the long run has it all.
DAY = date.today().toordinal()


def forms(case: Case, number: int) -> list[str]:
    """In which forms the saved module of a case is run: one of these today."""
    has_default = case.has_small_default and not case.is_shaped_by_config
    others = {"default": has_default, "dynamic": not case.needs_static_shapes}
    possible = ["small", *(form for form, is_right in others.items() if is_right)]
    return [possible[(number + DAY) % len(possible)]]


JOBS = [
    (case.name, form)
    for number, case in enumerate(CASES)
    if case.is_interpretable
    for form in forms(case, number)
]


@pytest.mark.parametrize("case", CASES[DAY % 2 :: 2], ids=str)
def test_compiles_for_a_gpu(case: Case) -> None:
    check_compiles(case)


@pytest.mark.full
@pytest.mark.parametrize("case", CASES[(DAY + 1) % 2 :: 2], ids=str)
def test_the_others_compile_for_a_gpu(case: Case) -> None:
    check_compiles(case)


def check_compiles(case: Case) -> None:
    bound = case.kernel.bind(case.make_args(), target=TARGET)
    info = compile_artifact(bound.to_artifact(case.config))
    assert info.binary


def problems_of(jobs: list[tuple[str, str]]) -> list[str | None]:
    """What went wrong in each job, all run in one process, which starts slowly."""
    paths = f"import sys; sys.path[:0] = [{str(ROOT / 'src')!r}, {str(ROOT)!r}]"
    module = "tests.conformance.triton_interpreter_worker"
    done = subprocess.run(
        [
            sys.executable, "-W", "ignore", "-c",
            f"{paths}; import runpy; runpy.run_module({module!r}, run_name='__main__')",
        ],
        input=json.dumps(jobs),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.parametrize("share", range(NUM_SHARES))
def test_saved_modules_compute_the_same(share: int) -> None:
    jobs = JOBS[share::NUM_SHARES]
    problems = problems_of(jobs)
    assert len(problems) == len(jobs) > 0
    failed = [
        f"{name} ({form}): {problem}" for (name, form), problem in zip(jobs, problems) if problem
    ]
    assert not failed, "\n".join(failed)
