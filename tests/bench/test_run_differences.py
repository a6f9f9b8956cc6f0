"""What two runs differ in is named, in whichever place their files say it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bench.made_up_rows import ENVIRONMENT, make_row
from tilesmith.bench.compare import compare, differences_text, run_differences
from tilesmith.bench.job_rows import driver_version
from tilesmith.bench.journal import Results
from tilesmith.bench.row import Row


def row_with(**environment: str) -> Row:
    return make_row(environment={**ENVIRONMENT, **environment})


def found(before: Row, after: Row, *runs: dict[str, Any]) -> dict[str, tuple[str, str]]:
    old, new = runs or ({}, {})
    first, second = Results([before], old), Results([after], new)
    return run_differences(first, second, compare([before], [after]))


def test_runs_that_are_alike_differ_in_nothing() -> None:
    run = {"software": {"torch": "2.11.0"}, "options": {"regime": "cold", "kernels": ["a"]}}
    other = {**run, "options": {"regime": "cold", "kernels": ["b"]}}
    row = row_with(load="0.3", cores="2")
    assert found(row, row_with(load="0.7", cores="2"), run, other) == {}
    assert found(row, row, {}, run) == {}


@pytest.mark.parametrize("name", ["torch", "triton", "device", "driver", "target"])
def test_an_environment_that_changed_is_named(name: str) -> None:
    before, after = row_with(**{name: "one"}), row_with(**{name: "other"})
    assert found(before, after) == {name: ("one", "other")}


def test_what_one_of_the_runs_does_not_say_is_named() -> None:
    assert found(row_with(), row_with(driver="570.1")) == {"driver": ("not said", "570.1")}


@pytest.mark.parametrize(
    ("option", "name", "values"),
    [
        ("regime", "regime", ("cold", "warm")),
        ("use_graph", "CUDA graphs", (True, False)),
        ("tune_budget_s", "seconds of a search", (15.0, 60.0)),
        ("backend", "backend", ("reference", "default")),
    ],
)
def test_options_that_times_depend_on_are_named(
    option: str, name: str, values: tuple[object, object]
) -> None:
    runs = [{"options": {option: "" if value == "default" else value}} for value in values]
    assert found(make_row(), make_row(), *runs) == {name: (str(values[0]), str(values[1]))}


@pytest.mark.parametrize(
    ("cores", "loads", "is_named"),
    [
        ("2", ("0.1", "0.6"), False),
        ("2", ("0.1", "0.7"), True),
        ("2", ("2.0", "0.2"), True),
        ("32", ("0.1", "8.0"), False),
        ("32", ("0.1", "8.2"), True),
        ("2", ("0.1", "heavy"), False),
    ],
)
def test_a_load_that_differs_by_a_part_of_the_cores_is_named(
    cores: str, loads: tuple[str, str], is_named: bool
) -> None:
    before, after = (row_with(load=load, cores=cores) for load in loads)
    assert found(before, after) == ({"load": loads} if is_named else {})


def test_rows_of_several_machines_are_told_apart() -> None:
    before = [row_with(), make_row(input_id=1, environment={"device": "A100"})]
    after = [row_with(), make_row(input_id=1, environment=ENVIRONMENT)]
    made = run_differences(Results(before), Results(after), compare(before, after))
    assert made == {"device": ("A100 and NVIDIA H200", "NVIDIA H200")}


def test_other_timers_and_fallbacks_of_rows_are_named() -> None:
    after = make_row(timer="events, cold", fallback="the default config does not build")
    assert found(make_row(), after) == {
        "timer": ("CUDA graph, cold", "events, cold"),
        "fallbacks": ("0 rows", "1 row"),
    }


def test_the_line_names_all_of_them_and_what_follows() -> None:
    text = differences_text(found(row_with(), row_with(torch="2.12.0", device="A100")))
    assert text == (
        "the runs differ in device (NVIDIA H200, then A100), torch (2.11.0, then 2.12.0): "
        "times may have changed due to that"
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n", "550.54.15"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  R\n", "570.86.10"),
        ("6.12.12\n", "6.12.12"),
        ("no number\n", ""),
    ],
)
def test_the_version_of_a_driver(text: str, version: str, tmp_path: Path) -> None:
    (tmp_path / "version").write_text(text)
    assert driver_version([tmp_path / "nowhere", tmp_path / "version"]) == version
