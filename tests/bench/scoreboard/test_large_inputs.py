"""Inputs that fit into time and memory, numbers of contents, seconds that are counted once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tests.bench.made_up_rows import make_row
from tests.bench.tiny_suite import NAME, suite
from tilesmith.bench import large_inputs as rooms
from tilesmith.bench.contents import content_number, own_tensor
from tilesmith.bench.large_inputs import LEAST_GB, Estimates, Room
from tilesmith.bench.plan import Job, Options
from tilesmith.bench.row import Owner
from tilesmith.bench.scoreboard.run import Part, plan_board, run_part
from tilesmith.cli.main import app


@dataclass
class Left:
    left: float
    estimates: Estimates = field(default_factory=Estimates)


def jobs_of(*operators: str) -> dict[str, list[Job]]:
    options = Options(suite=NAME, device="cpu", kernels=operators, only=("eager",), input_ids=(0,))
    return {job.operator: [job] for job in plan_board(suite(), options, with_tuned=False)}


def test_an_operator_is_estimated_by_itself_or_else_by_most_others() -> None:
    known = Estimates()
    assert known.of("a") == 0.0
    for operator, seconds in (("a", 5.0), ("b", 6.0), ("c", 7.0), ("a", 4.0), ("slow", 80.0)):
        known.note(operator, seconds)
    assert (known.of("a"), known.of("slow")) == (5.0, 80.0)
    assert known.of("new") == 7.0


def test_what_does_not_fit_into_a_part_makes_way_for_what_does() -> None:
    waiting, left = jobs_of("double", "sum"), Left(20.0)
    assert Room().next_input(waiting, [], left) == "double"
    left.estimates.note("double", 60.0)
    left.estimates.note("sum", 10.0)
    assert Room().next_input(waiting, [], left) == "sum"
    left.left = 5.0
    assert Room().next_input(waiting, [], left) is None


def test_no_more_inputs_run_than_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, needs = jobs_of("double", "sum"), {"double": 60.0, "sum": 0.0}
    monkeypatch.setattr(rooms, "needed_gb", lambda job: needs[job.operator])
    device = Room(100.0)
    assert device.next_input(waiting, [waiting["double"]], Left(9.0)) == "sum"
    crowd = [waiting["sum"]] * int(86.0 // LEAST_GB)
    assert device.next_input(waiting, crowd, Left(9.0)) is None
    # One that needs more than there is has the device alone, and says so itself.
    assert Room(10.0).next_input(waiting, [], Left(9.0)) == "double"


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.int64])
@pytest.mark.parametrize("length", [0, 1, 7, 33])
def test_contents_have_a_number(dtype: torch.dtype, length: int) -> None:
    made = (torch.arange(length + 3) % 100).to(dtype)
    number = content_number(made[:length].clone())
    assert content_number(made[:length]) == number
    # Wherever they begin in memory, and however they are laid out.
    assert content_number(torch.cat([made[:3], made[:length]])[3:]) == number
    assert content_number(torch.stack([made[:length]] * 2, 1)[:, 0]) == number
    for place in range(length):
        changed = made[:length].clone()
        changed[place] += 1
        assert content_number(changed) != number


def test_contents_that_changed_places_are_others() -> None:
    made = torch.arange(64.0)
    assert content_number(made.roll(2)) != content_number(made)


@pytest.mark.parametrize("length", [64, 3 * 4096 + 5])
def test_two_words_that_changed_places_are_seen(length: int) -> None:
    made = torch.arange(length) * 7919 % length
    numbers = {content_number(made)}
    # In one row and one column of sums, and in none, also beyond the last whole row.
    places = [(1, 2), (0, 3), (4, 5), (length - 2, length - 1)]
    places += [(1, 4097), (1, 4099), (4096, 8192), (2, length - 1)] if length > 8192 else []
    for first, second in places:
        changed = made.clone()
        changed[[first, second]] = made[[second, first]]
        numbers.add(content_number(changed))
    signs = torch.ones(length, dtype=torch.float64)
    for place in (0, 1, length // 2, length - 1):
        numbers.add(content_number(signs.index_fill(0, torch.tensor([place]), -1.0)))
    assert len(numbers) == 1 + len(places) + 4


def test_blocks_that_changed_places_are_seen() -> None:
    made = torch.arange(8 * 4096)
    for length in (4096, 2 * 4096, 16 * 4096 // 8):
        assert content_number(made.roll(length)) != content_number(made)


def test_results_are_copied_only_where_others_see_them() -> None:
    argument, made = torch.zeros(4, 4), torch.zeros(4, 4)
    assert own_tensor(made, (argument,)) is made
    for view in (argument.t(), made[:2]):
        kept = own_tensor(view, (argument,))
        assert kept.untyped_storage().data_ptr() != view.untyped_storage().data_ptr()


def test_seconds_of_building_are_none_of_the_reference(tmp_path: Path) -> None:
    options = Options(
        suite=NAME, device="cpu", path=tmp_path / "rows.jsonl", resume=True, kernels=("double",),
        only=("tilesmith", "eager"), input_ids=(2,),
    )  # fmt: skip
    rows = run_part(plan_board(suite(), options, with_tuned=False), options, Part())
    building = "building it and calling it for the first time"
    ours = next(row for row in rows if row.owner is Owner.OURS)
    assert sum(row.phases["reference"] for row in rows) < ours.phases[building]


def test_files_of_several_parts_are_one_board(tmp_path: Path) -> None:
    def write(name: str, device: str, **rows: float) -> str:
        run = {"run": {"started": "2026-01-02", "software": {"torch": "2.11"}}}
        made = [
            make_row(operator=operator, environment={"device": device}, speedup=speedup, **side)
            for operator, speedup in rows.items()
            for side in ({}, {"implementation": "eager", "owner": Owner.THEIRS})
        ]
        lines = [json.dumps(run), *(row.to_json() for row in made)]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return str(tmp_path / name)

    first = write("a.jsonl", "NVIDIA H200", one=1.5, two=1.2)
    second, other = write("b.jsonl", "NVIDIA H200", two=3.0), write("c.jsonl", "another", one=1.0)
    both = ["bench", "--scoreboard", "--from", first, "--from"]
    done = CliRunner().invoke(app, [*both, second])
    assert done.exit_code == 0, done.output
    assert "of 2 rows" in done.output
    assert "| two |" in (tmp_path / "a.md").read_text()
    done = CliRunner().invoke(app, [*both, other])
    assert done.exit_code == 2
    assert "its device is not that of" in done.output
