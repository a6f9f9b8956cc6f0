"""The Triton code of every conformance case compiles, and computes the same when interpreted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.conformance.all_cases import CASES
from tests.conformance.case import Case
from tests.warm_python import warm_python
from tilesmith.backends.triton.build import compile_artifact

ROOT = Path(__file__).parents[2]
TARGET = "cuda:90"
NUM_SHARES = 3
NUM_LONG_SHARES = 24
Job = tuple[str, str]
"""The name of a case and the form of its saved module."""


def forms(case: Case) -> list[str]:
    """In which forms the saved module of a case can be run."""
    has_default = case.has_small_default and not case.is_shaped_by_config
    others = {"default": has_default, "dynamic": not case.needs_static_shapes}
    return ["small", *(form for form, is_right in others.items() if is_right)]


def share_of_jobs() -> tuple[list[Job], list[Job]]:
    """For a third of the cases one form each, the forms taking turns; and all the other jobs."""
    chosen: list[Job] = []
    others: list[Job] = []
    for number, case in enumerate(case for case in CASES if case.is_interpretable):
        possible = forms(case)
        place, rest = divmod(number, 3)
        for form in possible:
            is_chosen = rest == 0 and form == possible[place % len(possible)]
            (chosen if is_chosen else others).append((case.name, form))
    return chosen, others


COMPILED = CASES[::6]
SHORT_JOBS, LONG_JOBS = share_of_jobs()


@pytest.mark.parametrize("case", COMPILED, ids=str)
def test_compiles_for_a_gpu(case: Case) -> None:
    check_compiles(case)


@pytest.mark.full
@pytest.mark.parametrize("case", [case for case in CASES if case not in COMPILED], ids=str)
def test_the_others_compile_for_a_gpu(case: Case) -> None:
    check_compiles(case)


def check_compiles(case: Case) -> None:
    bound = case.kernel.bind(case.make_args(), target=TARGET)
    info = compile_artifact(bound.to_artifact(case.config))
    assert info.binary


def problems_of(jobs: list[Job]) -> list[str | None]:
    """What went wrong in each job, all run in one process, which starts slowly."""
    paths = f"import sys; sys.path[:0] = [{str(ROOT / 'src')!r}, {str(ROOT)!r}]"
    module = "tests.conformance.triton_interpreter_worker"
    done = subprocess.run(
        [
            *warm_python(), "-W", "ignore", "-c",
            f"{paths}; import runpy; runpy.run_module({module!r}, run_name='__main__')",
        ],
        input=json.dumps(jobs),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def check_saved_modules(jobs: list[Job]) -> None:
    problems = problems_of(jobs)
    assert len(problems) == len(jobs) > 0
    failed = [
        f"{name} ({form}): {problem}" for (name, form), problem in zip(jobs, problems) if problem
    ]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("share", range(NUM_SHARES))
def test_saved_modules_compute_the_same(share: int) -> None:
    check_saved_modules(SHORT_JOBS[share::NUM_SHARES])


@pytest.mark.full
@pytest.mark.parametrize("share", range(NUM_LONG_SHARES))
def test_the_other_saved_modules_compute_the_same(share: int) -> None:
    check_saved_modules(LONG_JOBS[share::NUM_LONG_SHARES])
