"""Borders notice what is outside of tensors; logs of compute-sanitizer are read."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.fuzzing.simulated import running_ptx
from tools.sanitize import __main__ as sanitize
from tools.sanitize import summaries
from tools.sanitize.__main__ import Child, border_table, problem_lines, results, run_all, tool_table
from tools.sanitize.borders import BORDER, Yard, examine, fenced_args
from tools.sanitize.subjects import OWN, items, subjects
from tools.sanitize.summaries import Summary, command, find_sanitizer, read_log
from tools.sanitize.worker import Worker, read_lines

PITCHES = pytest.mark.parametrize("pitch", [0, 64])


def doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    out.copy_(x * 2)
    return out


def one_past(x: torch.Tensor) -> torch.Tensor:
    """A view that ends one element too far."""
    length = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride()))
    return torch.as_strided(x, (length + 1,), (1,))


def writes_outside(x: torch.Tensor) -> torch.Tensor:
    out = doubled(x)
    one_past(out)[-1] = 5
    return out


def writes_beside_its_argument(x: torch.Tensor) -> torch.Tensor:
    one_past(x)[-1] = 5
    return doubled(x)


def reads_outside(x: torch.Tensor) -> torch.Tensor:
    return one_past(x)[-1] + x


def leaves_some(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    out[1:] = x[1:]
    return out


@PITCHES
def test_what_stays_inside_is_clean(pitch: int):
    found = examine(doubled, (torch.randn(5, 7),), pitch=pitch)
    assert (found.written, found.depends, found.differs, found.wrong) == ((), False, False, "")
    assert found.num_fences == 2


@PITCHES
def test_a_write_outside_is_seen(pitch: int):
    found = examine(writes_outside, (torch.randn(5, 7),), pitch=pitch)
    assert any("beside empty_like" in text for text in found.written)
    found = examine(writes_beside_its_argument, (torch.randn(5, 7),), pitch=pitch)
    assert any("beside argument 0" in text for text in found.written)


@PITCHES
@pytest.mark.parametrize("function", [reads_outside, leaves_some])
def test_a_read_outside_or_of_what_nobody_set_is_seen(function: Any, pitch: int):
    assert examine(function, (torch.randn(5, 7),), pitch=pitch).depends


def test_rows_have_borders_too():
    """An element behind the end of a row is that of the next row, unless there is a border."""

    def next_row(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(x, (4,), (x.stride(0),), x.storage_offset() + 7).clone()

    x = torch.randn(5, 7)
    assert not examine(next_row, (x,)).depends
    assert examine(next_row, (x,), pitch=64).depends


def test_results_that_change_from_run_to_run():
    def random(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(())

    assert examine(random, (torch.zeros(3),)).differs
    assert not examine(random, (torch.zeros(3),), is_ordered=False).differs


def test_wrong_results_are_told():
    def check(found: torch.Tensor) -> None:
        assert found.sum() == 1, "not one"

    assert "not one" in examine(doubled, (torch.ones(3),), check).wrong


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4).t(),
        torch.randn(1, 4).expand(3, 4),
        torch.randn(6, 8)[1:4, 2:6],
        torch.randn(0, 4),
        torch.tensor(2.0),
        torch.randn(2, 3, 5),
        torch.arange(5, dtype=torch.int8),
    ],
    ids=lambda x: f"{tuple(x.shape)}-{x.stride()}",
)
@PITCHES
def test_arguments_keep_their_values_and_sizes(tensor: torch.Tensor, pitch: int):
    yard = Yard(0xFF)
    first, second, number = fenced_args((tensor, tensor, 3), yard, pitch)
    assert torch.equal(first, tensor)
    assert first is second
    assert number == 3
    assert first.data_ptr() % 16 == 0
    assert first.storage_offset() * first.element_size() == BORDER
    if not pitch:
        assert first.stride() == tensor.stride()
    assert yard.broken == []
    assert (len(yard.fences), yard.fences[0].fill) == (1, 0xFF)


def test_rows_of_batches_are_laid_apart():
    (found,) = fenced_args((torch.randn(2, 3, 5),), Yard(0), 64)
    assert found.stride() == (192, 64, 1)


MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at _softmax+0x1f0 in made.py:12
=========     by thread (32,0,0) in block (1,0,0)
=========     Address 0x7f31 is out of bounds
=========
========= ERROR SUMMARY: 3 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at _matmul+0x90 in made.py:3
=========     and Read access at _matmul+0xb0 in made.py:4 [64 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        (
            MEMCHECK,
            Summary(3, "Invalid __global__ write of size 4 bytes at _softmax+0x1f0", ("_softmax",)),
        ),
        (
            RACECHECK,
            Summary(
                *(2, "Error: Race reported between Write access at _matmul+0x90 in made.py:3"),
                ("_matmul",),
            ),
        ),
        ("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", Summary(0)),
        ("========= COMPUTE-SANITIZER\n", Summary(None)),
        ("", Summary(None)),
    ],
    ids=["memcheck", "racecheck", "clean", "cut", "empty"],
)
def test_logs_are_read(text: str, summary: Summary):
    assert read_log(text) == summary


def test_the_sanitizer_is_found_in_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(summaries.shutil, "which", lambda name: None)
    monkeypatch.setattr(summaries, "site", SimpleNamespace(getsitepackages=lambda: [str(tmp_path)]))
    monkeypatch.setattr(summaries.sys, "path", [])
    place = tmp_path / "nvidia" / "cuda_sanitizer" / "bin" / summaries.NAME
    place.parent.mkdir(parents=True)
    place.touch()
    assert str(place) in map(str, summaries._candidates())
    monkeypatch.setattr(summaries, "_candidates", lambda: iter([tmp_path / "missing", place]))
    assert find_sanitizer() == str(place)
    monkeypatch.setattr(summaries, "_candidates", lambda: iter([tmp_path / "missing"]))
    assert find_sanitizer() is None


def test_a_tool_is_started_with_its_log():
    found = command("/bin/s", "racecheck", Path("a.log"), ["python", "-m", "m"])
    assert found[:5] == ["/bin/s", "--tool", "racecheck", "--log-file", "a.log"]
    assert found[-3:] == ["python", "-m", "m"]


WORKER = """
import json, sys, time
from pathlib import Path
out, kind = Path(sys.argv[1]), sys.argv[2]
names = [json.loads(l).get("begins") for l in out.read_text().splitlines()] if out.exists() else []
with out.open("a") as file:
    for name in "abc":
        if name in names:
            continue
        print(json.dumps({"begins": name, "structure": "s"}), file=file, flush=True)
        if name == "b" and kind == "hangs":
            time.sleep(60)
        if name == "b" and kind == "dies":
            sys.exit(3)
        print(json.dumps({"ends": name, "structure": "s", "wrong": ""}), file=file, flush=True)
"""


@pytest.mark.parametrize(("kind", "why"), [("hangs", "hung"), ("dies", "3")])
def test_what_hangs_or_dies_costs_itself_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, why: str
):
    monkeypatch.setattr(sanitize, "HUNG_S", 3.0)
    out = tmp_path / "out.jsonl"
    child = Child([sys.executable, "-c", WORKER, str(out), kind], out, tmp_path / "log.txt")
    run_all([child], 30.0, 1)
    found = {line["ends"]: line.get("hung", "") for line in results([child])}
    assert found == {"a": "", "b": f"b ({why})", "c": ""}
    table = border_table(results([child]))
    assert table[1].split() == ["s", "3", "0", "0", "0", "0", "0", "1", "0"]
    assert problem_lines(results([child])) == [f"hung: b: b ({why})"]


def test_time_that_is_up_ends_processes(tmp_path: Path):
    out = tmp_path / "out.jsonl"
    child = Child([sys.executable, "-c", WORKER, str(out), "hangs"], out, tmp_path / "log.txt")
    run_all([child], 3.0, 1)
    assert child.process is not None
    assert child.process.poll() is not None


def test_a_tool_that_was_started_again_keeps_what_it_said(tmp_path: Path):
    child = Child([], tmp_path / "memcheck_0.jsonl", tmp_path / "log.txt")
    child.out.write_text('{"ends": "a"}\n')
    assert tool_table([child], tmp_path) == [("memcheck_0", 1, Summary(None))]
    (tmp_path / "memcheck_0.17.log").write_text("========= COMPUTE-SANITIZER\n")
    (tmp_path / "memcheck_0.18.log").write_text(MEMCHECK)
    ((_, _, summary),) = tool_table([child], tmp_path)
    assert summary == read_log(MEMCHECK)


def test_cut_lines_are_left_out(tmp_path: Path):
    path = tmp_path / "lines"
    path.write_text(json.dumps({"begins": "a"}) + '\n{"ends": "a", "str')
    assert read_lines(path) == [{"begins": "a"}]
    assert read_lines(tmp_path / "none") == []


def test_subjects_have_names_of_their_own_and_every_structure():
    listed = subjects()
    assert len({subject.name for subject in listed}) == len(listed)
    wanted = {"rows of products softmax (33, 72, 130)": {"two_phases", "last_reduces", "exchange"}}
    wanted["matmul 127x72x152 bfloat16"] = {"warp_roles"}
    for name, structures in wanted.items():
        (subject,) = (subject for subject in listed if subject.name == name)
        bound = subject.kernel.bind(subject.make("cpu"), target="cuda:90")
        assert {item.structure for item in items(subject, bound, 2)} >= {*structures, OWN}


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_a_worker_without_a_gpu_finds_nothing_wrong(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "out.jsonl"
    few = [subject for subject in subjects() if subject.name.startswith(("softmax ", "add "))][:2]
    monkeypatch.setattr("tools.sanitize.worker.subjects", lambda: few)
    until = time.time() + 30
    options = SimpleNamespace(device=device, plain=False, until=until, part=0, parts=1, out=out)
    with out.open("a") as file, running_ptx():
        Worker(options, file).run()  # type: ignore[arg-type]
    ended = [line for line in read_lines(out) if "ends" in line]
    assert ended
    assert all(line["fences"] > 1 for line in ended)
    assert not any(line["written"] or line["depends"] or line["wrong"] for line in ended)
