"""A kernel that faults poisons its process: end the worker there, so that only that test fails.

Without a GPU the PTX machine runs the tests that it can; the others are left out, with a reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.device.chip import IS_PTX
from tests.device.left_out import why_left_out
from tests.fuzzing.simulated import calls_for_a_gpu, running_ptx

STICKY = (
    "illegal memory access",
    "misaligned address",
    "unspecified launch failure",
    "illegal instruction",
)


HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items if IS_PTX else ():
        reason = item.path.is_relative_to(HERE) and why_left_out(item)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    if is_worker and report.failed and any(text in report.longreprtext for text in STICKY):
        # xdist starts a fresh worker and names the test that was running.
        os.write(2, f"{report.nodeid}: {report.longreprtext[-1500:]}\n".encode())
        os._exit(1)


@pytest.fixture(autouse=True)
def faults_belong_to_their_test() -> Iterator[None]:
    """Wait for the device, so that a fault is reported by the test that caused it."""
    yield
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@pytest.fixture(autouse=IS_PTX, scope="session")
def _calls_for_a_gpu() -> Iterator[None]:
    with calls_for_a_gpu():
        yield


@pytest.fixture(autouse=IS_PTX)
def _ptx_machine() -> Iterator[None]:
    """The PTX machine in the place of the GPU, with the same turns of threads each time."""
    with running_ptx():
        yield
