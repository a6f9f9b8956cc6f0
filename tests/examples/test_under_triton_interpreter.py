"""Every example kernel, exported with a random config, against fp64 under Triton's interpreter.

Half precision is fp16 only: the interpreter computes bf16 on bit patterns.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.examples.cases import EXAMPLES, Case

ROOT = Path(__file__).parents[2]
DTYPES = ("float32", "float16")
NUM_FULL_SEEDS = 20


def job_of(case: Case, seed: int) -> list[Any]:
    rng = random.Random(f"{case.name} {seed}")
    return [case.name, rng.choice(case.sizes), rng.choice(DTYPES), seed]


def run_worker(jobs: list[list[Any]]) -> list[str | None]:
    paths = f"import sys; sys.path[:0] = [{str(ROOT / 'src')!r}, {str(ROOT)!r}]"
    module = "tests.examples.triton_interpreter_worker"
    command = f"{paths}; import runpy; runpy.run_module({module!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", command],
        input=json.dumps(jobs),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> dict[tuple[str, int], str | None]:
    """What became of every (case, seed), run in one process, which starts slowly."""
    seeds = range(NUM_FULL_SEEDS if request.config.getoption("--full") else 1)
    keys = [(case, seed) for case in EXAMPLES for seed in seeds]
    results = run_worker([job_of(case, seed) for case, seed in keys])
    return {(case.name, seed): result for (case, seed), result in zip(keys, results)}


@pytest.mark.parametrize("case", EXAMPLES, ids=str)
def test_exported_module_agrees_with_fp64(
    case: Case, outcomes: dict[tuple[str, int], str | None]
) -> None:
    assert outcomes[case.name, 0] is None, outcomes[case.name, 0]


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, NUM_FULL_SEEDS))
@pytest.mark.parametrize("case", EXAMPLES, ids=str)
def test_any_config_agrees_with_fp64(
    case: Case, seed: int, outcomes: dict[tuple[str, int], str | None]
) -> None:
    assert outcomes[case.name, seed] is None, outcomes[case.name, seed]


def test_a_failing_job_is_reported() -> None:
    (result,) = run_worker([["no such case", [1], "float32", 0]])
    assert result is not None
    assert "KeyError" in result
