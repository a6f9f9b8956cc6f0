"""The table of launch costs: what is called computes what it should, and every row is there."""

from __future__ import annotations

import json

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from tilesmith.bench import timing as launch
from tilesmith.cli.json_option import launch_costs as launch_option
from tilesmith.cli.main import app

CPU = torch.device("cpu")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "COUNTS", (2, 6))
    monkeypatch.setattr(launch, "NUM_SHAPES", 2)
    monkeypatch.setattr(launch, "BATCH", 4)


@pytest.mark.parametrize("count", [2, 6])
def test_a_kernel_adds_all_but_its_first_argument(count: int, tmp_path):
    kernel = launch.make_kernel(count, tmp_path)
    for arguments in launch.make_arguments(count, launch.SAME, CPU):
        arguments[0].zero_()
        assert kernel(*arguments) is arguments[0]
        assert torch.equal(arguments[0], torch.full_like(arguments[0], count - 1))


def test_every_implementation_computes_the_same(small, tmp_path):
    sets = launch.make_arguments(6, launch.IN_TURN, CPU)
    assert len({arguments[0].shape for arguments in sets}) == 2
    calls = launch._calls(launch.make_kernel(6, tmp_path), sets, tmp_path)
    for name in (launch.OURS, launch.DIRECT):
        for call, arguments in zip(calls[name], sets):
            arguments[0].zero_()
            call()
            assert torch.equal(arguments[0], torch.full_like(arguments[0], 5.0)), name


def test_there_is_a_row_for_each_place(small):
    costs = launch.launch_costs("cpu", repeats=2)
    names = (launch.OURS, launch.DIRECT, launch.ADD, launch.ADD_OUT)
    expected = {(n, c, s) for n in names for c in (2, 6) for s in (launch.SAME, launch.IN_TURN)}
    assert {(c.implementation, c.num_arguments, c.shapes) for c in costs} == expected
    assert all(cost.us > 0 for cost in costs)


def test_the_command_prints_the_table(tmp_path, monkeypatch):
    costs = [
        launch.LaunchCost(launch.OURS, 2, launch.SAME, 3.5, 0.1),
        launch.LaunchCost(launch.DIRECT, 2, launch.SAME, 1.25, 0.0),
    ]
    console = Console(width=120, record=True)
    launch.print_launch_costs(console, costs)
    assert "+2.25" in console.export_text()

    def output(*options: str) -> str:
        result = CliRunner().invoke(app, ["bench", "--launch", "--device", "cpu", *options])
        assert result.exit_code == 0, result.output
        return result.stdout

    monkeypatch.setattr(launch_option, "launch_costs", lambda device: costs)
    table, printed, path = output(), output("--json"), tmp_path / "a.json"
    assert "same shape" in table
    assert json.loads(printed)["calls"][0]["us"] == 3.5
    assert output("--json", str(path)) == table  # a file stands beside the text
    assert path.read_text() == printed
