"""Profilers see kernels on the GPU by their names; determinism is honoured there too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import tilesmith as helion
import tilesmith.language as hl
from examples.softmax import softmax
from tests.device.chip import DEVICE
from tilesmith import exc

pytestmark = pytest.mark.device


@helion.kernel(config=helion.Config(block_sizes=[8, 64]))
def row_total(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(0)], device=x.device)
    for rows, columns in hl.tile(x.size()):
        hl.atomic_add(out, [rows], x[rows, columns].sum(-1))
    return out


def test_traces_have_the_range_and_the_kernel(tmp_path: Path) -> None:
    x = torch.randn(512, 512, device=DEVICE)
    softmax(x)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        softmax(x)
        torch.cuda.synchronize()
    trace.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    found = {(event.get("cat"), event["name"]) for event in events if "name" in event}
    assert ("user_annotation", "tilesmith::softmax") in found
    assert ("gpu_user_annotation", "tilesmith::softmax") in found
    assert ("kernel", "_softmax") in found


def test_calls_run_under_nvtx() -> None:
    x = torch.randn(512, 512, device=DEVICE)
    with torch.autograd.profiler.emit_nvtx():
        torch.testing.assert_close(softmax(x), torch.softmax(x, 1))


@pytest.fixture
def _reset() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_reset")
def test_torch_asks_for_determinism() -> None:
    x = torch.randn(100, 700, device=DEVICE)
    row_total(x)
    torch.use_deterministic_algorithms(True)
    results = [row_total(x) for _ in range(20)]
    torch.testing.assert_close(results[0].double(), x.double().sum(1), rtol=1e-5, atol=1e-4)
    assert all(torch.equal(results[0], other) for other in results)
    with pytest.raises(exc.NondeterministicAlgorithm):
        row_total(torch.randn(4, 1 << 16, device=DEVICE))
