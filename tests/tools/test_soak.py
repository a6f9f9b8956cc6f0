"""The end of a soak: what counts as growth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools.soak.__main__ import Plan, printer, soak
from tools.soak.memory import Memory, Modules, growth_by_file
from tools.soak.sample import Latency, Sample, judge, take_sample, tell_growth

BEGIN = Sample(0.0, 500.0, 6, 9, 0, 0, 1000, Latency(60.0, 5000.0), Latency(70.0, 5000.0))


def samples(**changes: Any) -> list[Sample]:
    """Twelve in an hour; a function of the place in the hour, from 0 to 1, for some fields."""
    return [
        replace(
            BEGIN,
            seconds=300.0 * number,
            **{name: change(number / 11) for name, change in changes.items()},
        )
        for number in range(12)
    ]


def test_what_stays_as_it_is_is_no_problem():
    assert judge(samples(), []) == []


@pytest.mark.parametrize(
    ("field", "change", "problem"),
    [
        ("resident_mb", lambda share: 500 + 200 * share, "memory grows by 218 MB an hour"),
        ("descriptors", lambda share: 6 + 60 * share, "descriptors grow from"),
        ("threads", lambda share: 9 + 60 * share, "threads grow from"),
        ("children", lambda share: 60 * share, "children grow from"),
        ("files", lambda share: 60 * share, "files grow from"),
        ("ours", lambda share: Latency(60 + 1000 * share, 5000.0), "times as long as eager's"),
        ("ours", lambda share: Latency(60, 11000.0), "p99 of calls is 2.20 times eager's"),
    ],
)
def test_growth_is_told(field: str, change: Any, problem: str):
    (found,) = judge(samples(**{field: change}), [])
    assert problem in found


def test_a_machine_that_gets_slower_is_not_our_growth():
    slower = samples(
        ours=lambda share: Latency(60 + 300 * share, 5000 + 90000 * share),
        eager=lambda share: Latency(70 + 400 * share, 5000 + 80000 * share),
    )
    assert judge(slower, []) == []


def test_wrong_results_are_problems_however_short_the_run():
    assert judge([BEGIN], ["made_3 is wrong"]) == [
        "made_3 is wrong",
        "too few samples to tell: run longer",
    ]


def test_a_sample_is_of_this_process(tmp_path: Path):
    Path(tmp_path, "folder").mkdir()
    Path(tmp_path, "folder", "file").touch()
    found = take_sample(1.0, [1e-6] * 100, [2e-6] * 100, str(tmp_path))
    assert found.files == 2
    assert found.resident_mb > 10
    assert found.threads >= 1
    assert found.ratio == pytest.approx(0.5)
    assert "ours     1.0 /      1.0 us" in found.line()


def test_what_triton_keeps_of_each_kernel_is_growth():
    memory = {"memory": lambda share: Memory(loaded=int(6000 * share))}
    growing = samples(resident_mb=lambda share: 500 + 75 * share, **memory)
    assert judge(growing, []) == ["memory grows by 82 MB an hour"]
    (line,) = tell_growth(growing)
    assert line.startswith("kernels come and go: resident memory +81.8 MB an hour (limit 24), 6546")
    assert "memory grows by 82" in judge(samples(resident_mb=lambda s: 500 + 75 * s), [])[0]


def test_one_high_sample_is_no_growth():
    growing = samples()
    growing[-1] = replace(growing[-1], resident_mb=900.0)
    assert judge(growing, []) == []


def test_calls_alone_are_judged_by_themselves():
    quiet = [
        replace(BEGIN, seconds=3600.0 + 60 * n, resident_mb=500 + n, is_quiet=True)
        for n in range(8)
    ]
    (problem,) = judge([*samples(), *quiet], [])
    assert problem == "memory grows by 60 MB an hour by calls alone"
    assert "only calls: resident memory +60.0 MB an hour (limit 24)" in tell_growth(quiet)[0]


def test_lines_are_in_the_file_while_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "soak.txt"
    with path.open("w") as file:
        show = printer(file)
        show("a sample")
        assert path.read_text() == "a sample\n"
    assert capsys.readouterr().out == "a sample\n"


def test_memory_of_python_is_told_by_file():
    tell = growth_by_file()
    kept = [bytearray(1000) for _ in range(1000)]
    assert any("tests/tools/test_soak.py" in line for line in tell())
    assert len(kept) == 1000


def test_malloc_and_modules_are_in_the_line():
    found = Modules("cpu").memory()
    assert found.malloc_used > 1
    assert "used" in found.line()
    assert "5 loaded 3 unloaded" in Memory(loaded=5, unloaded=3).line()


@pytest.mark.full
def test_half_a_minute_of_everything():
    """On a busy machine this is too short to judge latency by; results and threads must hold."""
    seen, problems = soak(Plan(0.5, callers=1))
    assert seen[-1].calls
    assert not [text for text in problems if "off by" in text or "ended by" in text]
