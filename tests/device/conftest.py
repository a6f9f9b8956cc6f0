"""A kernel that faults poisons its process: end the worker there, so that only that test fails."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

STICKY = (
    "illegal memory access",
    "misaligned address",
    "unspecified launch failure",
    "illegal instruction",
)


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
