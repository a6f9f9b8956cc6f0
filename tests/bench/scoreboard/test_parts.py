"""A scoreboard in parts: shared processes, what is made again alone, what the next part does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.suites import suite as whole_suite
from tests.bench.made_up_rows import make_row
from tests.bench.tiny_suite import NAME, double_operator, suite
from tilesmith.bench.case import Suite
from tilesmith.bench.implementations import ImplementationKind
from tilesmith.bench.job_rows import blank_row
from tilesmith.bench.journal import read_journal
from tilesmith.bench.judging.once import JudgesOnce
from tilesmith.bench.plan import Options
from tilesmith.bench.reference import Judge, Judgement, work_out
from tilesmith.bench.row import Cause, Owner, Status
from tilesmith.bench.scoreboard import run as parts
from tilesmith.bench.scoreboard.run import Part, board_inputs, is_held_out, plan_board, run_part
from tilesmith.cli.main import app

WRONG = "tests.bench.broken_implementations:wrong"
ONLY = ("tilesmith*", "eager", "by_hand")


def options_for(path: Path, **changes: object) -> Options:
    chosen: dict[str, object] = {"kernels": ("double",), "only": ONLY, **changes}
    return Options(suite=NAME, device="cpu", path=path, resume=True, **chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_operator_has_a_small_a_usual_and_a_large_input(device: str) -> None:
    halves: list[bool] = []
    for operator in whole_suite().operators:
        chosen = list(board_inputs(operator, device))
        assert len(chosen) >= 3
        assert chosen == sorted(set(chosen))
        assert chosen[-1] == len(operator.inputs_on(device)) - 1
        halves += map(is_held_out, chosen)
    assert 0.3 < sum(halves) / len(halves) < 0.7


def test_founding_case_3_is_on_the_board_whole() -> None:
    found = {one.name: board_inputs(one, "cuda") for one in whole_suite().operators}
    assert sum(len(ids) for name, ids in found.items() if name.startswith("matmul_")) == 21


def test_searches_are_run_only_where_they_were_asked_for(tmp_path: Path) -> None:
    options = options_for(tmp_path / "rows.jsonl", only=())
    tuned = ImplementationKind.TUNED
    for with_tuned in (False, True):
        jobs = plan_board(suite(), options, with_tuned=with_tuned)
        assert any(job.implementation.kind is tuned for job in jobs) is with_tuned


def test_on_a_cpu_only_what_runs_there_counts_unless_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"

    def names(device: str, **changes: Any) -> set[str]:
        options = replace(options_for(path, only=(), **changes), device=device)
        jobs = plan_board(suite(), options, with_tuned=False)
        return {job.implementation.name for job in jobs}

    assert names("cuda") >= {"tilesmith", "eager", "torch_compile", "torch_compile_max", "by_hand"}
    assert names("cpu") == {"tilesmith", "eager", "torch_compile"}
    assert names("cpu", impls=(f"double={WRONG}",)) > names("cpu")
    asked = plan_board(suite(), options_for(path, only=("by_hand",)), with_tuned=False)
    assert {job.implementation.name for job in asked} == {"by_hand"}


def test_a_part_ends_in_time_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl"
    options = options_for(path)
    jobs = plan_board(suite(), options, with_tuned=False)
    now = [0.0]
    monkeypatch.setattr(parts, "monotonic", lambda: now[0])
    original = parts._Board._finished

    def finished(self: parts._Board, *outcome: object):
        now[0] += 100.0
        return original(self, *outcome)  # type: ignore[arg-type]

    monkeypatch.setattr(parts._Board, "_finished", finished)
    first = run_part(jobs, options, Part(50.0, began=0.0))
    assert [row.input_label for row in first] == ["1"] * 3
    rest = run_part(jobs, options, Part(began=now[0]))
    assert len(rest) == len(jobs) == 9
    assert rest[:3] == first
    assert {row.status for row in rest} == {Status.OK}
    assert all(row.speedup and row.phases and row.seconds for row in rest)
    assert len(read_journal(path).rows) == 9


def test_a_wrong_or_deadly_neighbour_is_its_own_failure(tmp_path: Path) -> None:
    """The eager form of ``fragile`` kills the process that it is called in."""
    wrong = "broken_implementations.wrong"
    options = options_for(
        tmp_path / "rows.jsonl",
        kernels=("double", "fragile"),
        only=("tilesmith", "eager", wrong),
        impls=(f"double={WRONG}",),
        input_ids=(0,),
    )
    rows = run_part(plan_board(suite(), options, with_tuned=False), options, Part())
    found = {(row.operator, row.implementation): row for row in rows}
    assert found.pop(("double", wrong)).cause is Cause.WRONG_RESULT
    killer = found.pop(("fragile", "eager"))
    assert killer.cause is Cause.CRASH
    assert "SIGSEGV" in killer.reason
    assert [*found] == [("double", "tilesmith"), ("double", "eager"), ("fragile", "tilesmith")]
    assert all(row.status is Status.OK and row.latency_ms for row in found.values())


@pytest.mark.parametrize(
    ("changes", "is_final"),
    [
        ({}, True),
        ({"status": Status.UNAVAILABLE}, True),
        ({"status": Status.FAILED, "cause": Cause.EXCEPTION}, False),
        ({"status": Status.FAILED, "cause": Cause.EXCEPTION, "owner": Owner.THEIRS}, True),
        ({"status": Status.FAILED, "cause": Cause.OUT_OF_MEMORY, "owner": Owner.THEIRS}, False),
        ({"status": Status.FAILED, "cause": Cause.WRONG_RESULT, "owner": Owner.THEIRS}, False),
    ],
)
def test_what_neighbours_may_have_a_part_in_is_made_again(changes: Any, is_final: bool) -> None:
    assert parts._is_final(make_row(**changes)) is is_final


def test_equal_results_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = double_operator()
    arguments = operator.inputs[1].make(torch.device("cpu"), torch.float32)
    judged: list[Judgement] = []
    plain = Judge.judge

    def count(self: Judge, returned: object) -> Judgement:
        judged.append(plain(self, returned))
        return judged[-1]

    monkeypatch.setattr(Judge, "judge", count)
    judge = JudgesOnce(operator, arguments, work_out(operator, arguments), ())
    right = arguments[0] * 2
    assert not judge.judge(right).problem
    assert not judge.judge(right.clone()).problem
    assert len(judged) == 1
    off = right.clone()
    off[7] += 1
    assert judge.judge(off).problem
    assert judge.judge([right, right]).problem == ""
    assert len(judged) == 3


def test_the_command_writes_page_and_table(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    words = ["bench", "--scoreboard", "--suite", NAME]
    chosen = ["--kernel", "double", "--input-id", "2", "--only", "tilesmith,eager"]
    done = CliRunner().invoke(app, [*words, *chosen, "--device", "cpu", "--out", str(path)])
    assert done.exit_code == 0, done.output
    for _ in range(2):
        assert "behind beyond noise, of 1 row" in done.output
        assert "double" in path.with_suffix(".html").read_text()
        assert "| double |" in path.with_suffix(".md").read_text()
        path.with_suffix(".html").unlink()
        done = CliRunner().invoke(app, ["bench", "--scoreboard", "--from", str(path)])


def test_a_list_of_a_board_runs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    words = ["bench", "--scoreboard", "--list", "--suite", NAME, "--kernel", "double"]
    done = CliRunner().invoke(app, [*words, "--device", "cpu", "--out", str(path)])
    assert done.exit_code == 0, done.output
    name, implementations, *inputs = done.stdout.splitlines()
    assert name == "double"
    assert "tilesmith_tuned" not in implementations
    assert [int(line.split()[0]) for line in inputs] == [0, 1, 2]
    assert not path.exists()


def test_a_whole_run_is_put_aside_for_the_next_one_to_be_compared_with(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    jobs = plan_board(suite(), options_for(path), with_tuned=False)
    rows = [blank_row(job).to_json() for job in jobs]
    for count, is_aside in ((len(rows) - 1, False), (len(rows), True)):
        path.write_text("\n".join(rows[:count]) + "\n")
        parts.begin_board(jobs, path)
        assert parts.path_before(path).exists() is is_aside
        assert path.exists() is not is_aside


def test_a_suite_of_one_input_is_a_board_too() -> None:
    single = Suite("one", [replace(double_operator(), inputs=double_operator().inputs[:1])])
    assert list(board_inputs(single.operators[0], "cuda")) == [0]
