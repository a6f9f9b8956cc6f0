"""Every example kernel, exported with a random config, against fp64 under Triton's interpreter.

Half precision is fp16 only: the interpreter computes bf16 on bit patterns.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.examples.case import Case
from tests.examples.cases import EXAMPLES
from tests.examples.ports.ports import PORTS
from tests.warm_python import warm_python

ROOT = Path(__file__).parents[2]
DTYPES = ("float32", "float16")
CASES = [
    case
    for case in (*EXAMPLES, *PORTS)
    if case.is_interpretable and {torch.float32, torch.float16} & set(case.dtypes)
]
NUM_FULL_SEEDS = 20
NUM_SHARES = 6


def job_of(case: Case, seed: int) -> list[Any]:
    rng = random.Random(f"{case.name} {seed}")
    has_static_shapes = seed % 2 == 0 or case.needs_static_shapes
    dtypes = [name for name in DTYPES if getattr(torch, name) in case.dtypes]
    return [case.name, rng.choice(case.sizes), rng.choice(dtypes), has_static_shapes, seed]


def run_worker(jobs: list[list[Any]]) -> list[str | None]:
    paths = f"import sys; sys.path[:0] = [{str(ROOT / 'src')!r}, {str(ROOT)!r}]"
    module = "tests.examples.triton_interpreter_worker"
    command = f"{paths}; import runpy; runpy.run_module({module!r}, run_name='__main__')"
    done = subprocess.run(
        [*warm_python(), "-W", "ignore", "-c", command],
        input=json.dumps(jobs),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("share", range(NUM_SHARES))
def test_exported_modules_agree_with_fp64(share: int, request: pytest.FixtureRequest) -> None:
    seeds = range(NUM_FULL_SEEDS if request.config.getoption("--full") else 1)
    jobs = [job_of(case, seed) for case in CASES[share::NUM_SHARES] for seed in seeds]
    problems = run_worker(jobs)
    assert len(problems) == len(jobs) > 0
    failed = [f"{job}: {problem}" for job, problem in zip(jobs, problems) if problem]
    assert not failed, "\n".join(failed)


def test_a_failing_job_is_reported() -> None:
    (result,) = run_worker([["no such case", [1], "float32", True, 0]])
    assert result is not None
    assert "KeyError" in result
