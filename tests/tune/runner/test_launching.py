"""Launches from tensors by parameter, natively and (with Triton's part replaced) on a GPU."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests.tune.runner.cases import in_place_case
from tilesmith.artifacts import Artifact, LaunchParameter
from tilesmith.lab.workload.binding import Binding
from tilesmith.lab.workload.loading import Workload
from tilesmith.store.outcome import Resources
from tilesmith.targets import parse_target
from tilesmith.tune.jobs import Program
from tilesmith.tune.runner import launching
from tilesmith.tune.runner.launching import LaunchPlace, make_launch

COUNTER = "torch.zeros(1, dtype=torch.int32, device=x.device)"


@pytest.fixture
def place(tmp_path):
    return LaunchPlace(torch.device("cpu"), tmp_path, num_threads=1)


def test_native_code_runs_on_the_values_of_its_parameters(tmp_path, place):
    case = in_place_case(tmp_path)
    program, workload = case.program(), Workload.load(case.workload, "cpu")
    values = workload.arguments(program.binding)
    x, y = torch.as_tensor(values["x"]), torch.as_tensor(values["y"])
    expected = x + y
    make_launch(program, values, place).run()
    assert torch.equal(x, expected)


def test_names_and_sources_of_parameters_do_not_matter(tmp_path, place):
    program = in_place_case(tmp_path).program()
    odd = replace(
        program.artifact,
        parameters=tuple(
            replace(parameter, name=f"{parameter.name}.0", source="no[python")
            for parameter in program.artifact.parameters
        ),
    )
    values = {"x.0": torch.ones(1000), "y.0": torch.full([1000], 2.0)}
    make_launch(replace(program, artifact=odd), values, place).run()
    assert torch.equal(values["x.0"], torch.full([1000], 3.0))


class FakeLauncher:
    """Records what it is called with, and counts up at the barrier."""

    def __init__(self, artifact, captured, constants, options) -> None:
        self.sources = [parameter.source for parameter in artifact.parameters]
        assert self.sources == list(captured)
        self.kernels: tuple[SimpleNamespace, ...] = ()
        self.calls: list[tuple[float, int, int]] = []
        FakeLauncher.last = self

    last: FakeLauncher

    def launch(self, x: torch.Tensor, n: int, counter: torch.Tensor) -> None:
        self.calls.append((float(x[0]), n, int(counter)))
        counter.add_(7)
        metadata = SimpleNamespace(shared=2048)
        self.kernels = (SimpleNamespace(metadata=metadata, n_regs=40, n_spills=2),)


def test_on_a_gpu_counters_start_at_zero_and_resources_are_read(monkeypatch, place):
    monkeypatch.setattr(launching, "triton_launcher", FakeLauncher)
    parameters = (
        LaunchParameter("x", "x", True, "f32"),
        LaunchParameter("n", "x.size(0)", False, "i32"),
        LaunchParameter("counter", COUNTER, True, "i32"),
    )
    artifact = Artifact(
        "k", "", parameters, (), ("1",), target=parse_target("cuda:90"), backend="triton"
    )
    launch = make_launch(
        Program("k", artifact, Binding(())), {"x": torch.full([3], 5.0), "n": 3}, place
    )
    assert launch.resources() == Resources()
    launch.run()
    launch.run()
    assert FakeLauncher.last.calls == [(5.0, 3, 0), (5.0, 3, 0)]
    assert launch.resources() == Resources(shared_bytes=2048, registers=40, spills=2)
