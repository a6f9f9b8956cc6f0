"""Our kernels under observation: the row says which config ran, and when it is a fallback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tilesmith.exc as errors
from tests.bench.tiny_suite import NAME, double, double_operator, suite
from tests.warm_python import warm_python
from tilesmith.bench.implementations import Implementation, ImplementationKind
from tilesmith.bench.job_rows import blank_row
from tilesmith.bench.plan import Options, make_plan
from tilesmith.bench.row import INTERPRETED, Row, Status
from tilesmith.bench.trial import Trial
from tilesmith.compiler.specialization import Specialization
from tilesmith.diagnostics.kernel_warnings import ConfigReplaced, WarningLog

ROOT = Path(__file__).parents[2]
OPTIONS = Options(suite=NAME, kernels=("double",), device="cpu")
INTERPRETED_ROW = """
from tests.bench.test_ours import check_default
print(check_default().fallback)
"""


def check_default() -> Row:
    """The row of our kernel as a first call takes it, before it is timed."""
    implementation = Implementation(
        "tilesmith", ImplementationKind.DEFAULT, f"{NAME}:double_by_function"
    )
    job = replace(make_plan(suite(), OPTIONS)[0], implementation=implementation)
    arguments = double_operator().inputs[2].make(torch.device("cpu"), torch.float32)
    return Trial(job, OPTIONS, double_operator(), arguments, None, blank_row(job)).check()


@pytest.fixture(autouse=True)
def unbound() -> Iterator[None]:
    definition = double.definition
    before = definition.tuner, definition.warnings
    double.reset()
    yield
    definition.tuner, definition.warnings = before
    double.reset()


def fail_first(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Have the first configs not build."""
    emit = Specialization.artifact
    failed: list[Any] = []

    def emit_some(self: Specialization, config: Any, *rest: Any) -> Any:
        if len(failed) < count:
            failed.append(config)
            raise errors.InvalidConfig(problem=f"too large for test {len(failed)}")
        return emit(self, config, *rest)

    monkeypatch.setattr(Specialization, "artifact", emit_some)


def test_the_default_is_no_fallback() -> None:
    row = check_default()
    assert (row.status, row.fallback) == (Status.OK, "")
    assert row.config == str(double.bind((torch.ones(1009),)).default_config())


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("ignored", [(), (ConfigReplaced,)])
def test_a_fallback_config_is_named_with_the_reason(
    count: int, ignored: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_first(monkeypatch, count)
    double.definition.warnings = WarningLog(ignored)
    row = check_default()
    assert row.status is Status.OK
    assert row.fallback.startswith("the default config of double does not build: ")
    assert "too large for test 1" in row.fallback
    spec = double.bind((torch.ones(1009),)).config_spec
    assert row.config == str(spec.fallback_configs()[count])
    assert Row.from_json(row.to_json()) == row


def test_the_interpreter_is_named() -> None:
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TILESMITH_BACKEND": "reference",
    }
    command = [*warm_python(), "-c", INTERPRETED_ROW]
    done = subprocess.run(
        command, check=False, env=variables, cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.strip() == INTERPRETED, done.stderr
