"""Timers: order of the calls, what is counted, and device times where there is a device."""

from __future__ import annotations

import time

import pytest
import torch

from tilesmith.measure.timer import Timing, capture_graph, time_on_cpu, time_on_device


def test_calls_are_interleaved_and_alternate_in_order():
    calls: list[str] = []
    works = {name: lambda name=name: calls.append(name) for name in "abc"}
    time_on_cpu(works, repeats=3, warmup=0)
    assert "".join(calls) == "abccbaabc"


def test_warm_up_calls_are_not_sampled():
    calls: list[int] = []
    timings = time_on_cpu({"work": lambda: calls.append(1)}, repeats=4, warmup=3)
    assert len(calls) == 7
    assert len(timings["work"].samples_ms) == 4


def test_a_sleep_is_measured_in_milliseconds():
    timings = time_on_cpu({"sleep": lambda: time.sleep(0.01)}, repeats=5, warmup=1)
    assert 10.0 <= timings["sleep"].median_ms < 40.0


def test_slower_work_has_the_larger_median():
    works = {"short": lambda: time.sleep(0.001), "long": lambda: time.sleep(0.008)}
    timings = time_on_cpu(works, repeats=5)
    assert timings["long"].median_ms > 2 * timings["short"].median_ms


def test_short_calls_are_batched_and_reported_per_call():
    calls: list[int] = []
    timings = time_on_cpu(
        {"append": lambda: calls.append(1)}, repeats=3, warmup=0, min_sample_ms=2.0
    )
    assert len(calls) > 100
    assert timings["append"].median_ms < 0.1


def test_an_exception_reaches_the_caller():
    def fail() -> None:
        raise RuntimeError("no such kernel")

    with pytest.raises(RuntimeError, match="no such kernel"):
        time_on_cpu({"fail": fail})


def test_timing_summarises_its_samples():
    timing = Timing((1.0, 3.0, 2.0))
    assert timing.median_ms == 2.0
    assert timing.summary.num_samples == 3


@pytest.mark.device
@pytest.mark.parametrize("use_graph", [False, True])
def test_a_device_copy_runs_at_a_believable_bandwidth(use_graph):
    source = torch.randn(1 << 26, device="cuda")
    target = torch.empty_like(source)
    work = lambda: target.copy_(source)  # noqa: E731
    timings = time_on_device({"copy": capture_graph(work) if use_graph else work}, repeats=20)
    gigabytes_per_second = 2 * source.nbytes / timings["copy"].median_ms / 1e6
    assert 100 < gigabytes_per_second < 20_000


@pytest.mark.device
def test_the_cache_is_cold_in_every_run():
    sizes = {"tiny": 1, "fits the cache": 1 << 23, "does not": 1 << 28}
    tensors = {name: torch.randn(size, device="cuda") for name, size in sizes.items()}
    works = {name: lambda values=values: values.sum() for name, values in tensors.items()}
    ready = {name: capture_graph(work) for name, work in works.items()}
    timings = time_on_device(ready, repeats=30)
    overhead_ms = timings["tiny"].median_ms
    rates = {
        name: tensors[name].nbytes / (timings[name].median_ms - overhead_ms)
        for name in ("fits the cache", "does not")
    }
    # What is read from the cache comes in faster than memory delivers.
    assert rates["fits the cache"] < 1.25 * rates["does not"]
