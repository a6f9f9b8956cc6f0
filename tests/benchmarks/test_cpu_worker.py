"""The CPU benchmark at toy sizes: right results are timed, wrong ones are not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benchmarks import cpu_worker
from benchmarks.cpu_compile_time import compile_in_stages
from benchmarks.cpu_worker import Options, measure
from benchmarks.cpu_workloads import ADD, JAGGED_MEAN, WORKLOADS, tensors

OPTIONS = Options(threads=1, rounds=2, min_sample_ms=0.0, use_compile=False)
SMALL_ADD = replace(ADD, make_inputs=tensors((100,), (100,)))


def test_names_are_unique():
    assert len({item.name for item in WORKLOADS}) == len(WORKLOADS)


def test_every_kernel_is_there():
    assert all(callable(item.load_kernel()) for item in WORKLOADS)


def test_a_right_result_is_timed():
    row = measure(SMALL_ADD, OPTIONS)
    assert not row.problem
    assert row.ours_ms is not None
    assert row.eager_ms is not None
    assert row.ratio is not None
    assert row.compile_ms is None
    assert row.rate_unit == "GB/s"
    assert row.rate == pytest.approx(1200 / row.ours_ms / 1e6)


def test_a_wrong_result_is_never_timed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cpu_worker, "run_rounds", None)
    row = measure(replace(SMALL_ADD, exact=lambda x, y: x.double() - y.double()), OPTIONS)
    assert row.verdict == "wrong"
    assert row.ours_ms is None


def test_a_wrong_baseline_is_left_out():
    row = measure(replace(SMALL_ADD, eager={"eager": torch.sub}), OPTIONS)
    assert row.ours_ms is not None
    assert row.eager_ms is None
    assert row.ratio is None
    assert any(note.startswith("eager: wrong") for note in row.notes)


def test_the_fastest_eager_form_counts():
    forms = {"slow": lambda x, y: sum((x + y) * 0 for _ in range(300)) + x + y, "fast": torch.add}
    row = measure(replace(SMALL_ADD, eager=forms), OPTIONS)
    assert "eager is fast" in row.notes
    assert any(note.startswith("slow ") for note in row.notes)


def test_jagged_means_agree_in_all_forms():
    row = measure(JAGGED_MEAN, OPTIONS)
    assert not row.problem
    assert not any("wrong" in note for note in row.notes)


def test_failure_is_part_of_the_answer(monkeypatch: pytest.MonkeyPatch):
    def fail(workload, options):
        raise ValueError("too bad")

    monkeypatch.setattr(cpu_worker, "measure", fail)
    row = cpu_worker.run_job("softmax bf16", OPTIONS)
    assert row.problem == "ValueError: too bad"


def test_compile_time_by_stages():
    stages = compile_in_stages("add", ADD.load_kernel(), SMALL_ADD.inputs())
    assert not stages.problem
    assert stages.llvm_lines > 10
    assert stages.machine_ms is not None
