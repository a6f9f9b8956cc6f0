"""Rounds on the host with a meter, on a made-up clock: what is marked, and what is done again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain, repeat

import pytest

from tilesmith.measure import timer
from tilesmith.measure.disturbance import Reading
from tilesmith.measure.timer import Conditions, Timing, time_on_cpu


class MadeUpHost:
    """A clock that only work moves; each call takes some milliseconds and waits some of them."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waited_s = 1.0

    def perf_counter(self) -> float:
        return self.now_s

    def meter(self) -> Reading:
        return Reading(self.now_s, self.now_s, {"main": self.waited_s})

    def work(self, ms: float, waits_ms: Iterable[float] = ()) -> Callable[[], None]:
        """Work of so many milliseconds, kept waiting in its first calls."""
        waits = chain(waits_ms, repeat(0.0))

        def call() -> None:
            waited = next(waits) / 1e3
            self.now_s += ms / 1e3 + waited
            self.waited_s += waited

        return call


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> MadeUpHost:
    made = MadeUpHost()
    monkeypatch.setattr(timer, "time", made)
    return made


def metered(host: MadeUpHost, spare_s: float = 1.0) -> Conditions:
    return Conditions(meter=host.meter, spare_s=spare_s)


def time_both(host: MadeUpHost, waits_ms: Iterable[float], spare_s: float) -> tuple[Timing, Timing]:
    works = {"alone": host.work(1.0), "kept": host.work(2.0, waits_ms)}
    found = time_on_cpu(works, repeats=4, warmup=0, conditions=metered(host, spare_s))
    return found["alone"], found["kept"]


def test_a_quiet_machine_has_the_rounds_that_were_asked_for(host):
    alone, kept = time_both(host, (), 1.0)
    assert kept.samples_ms == pytest.approx([2.0] * 4)
    assert alone.disturbed == kept.disturbed == (False,) * 4


def test_disturbed_rounds_are_marked_and_made_up_for(host):
    alone, kept = time_both(host, (0.0, 10.0, 0.1, 10.0), 1.0)
    assert kept.samples_ms == pytest.approx([2.0, 12.0, 2.1, 12.0, 2.0, 2.0])
    assert kept.disturbed == (False, True, False, True, False, False)
    # What ran in the same rounds was not disturbed itself.
    assert alone.disturbed == (False,) * 6


def test_rounds_are_made_up_for_until_the_spare_time_is_over(host):
    _, kept = time_both(host, repeat(7.0), 0.035)
    # Four rounds of 10 ms, then as many as end within 35.
    assert kept.disturbed == (True,) * 7


def test_there_may_be_no_spare_time(host):
    _, kept = time_both(host, repeat(7.0), 0.0)
    assert kept.disturbed == (True,) * 4


def test_the_limit_of_time_holds_for_spare_rounds_too(host):
    conditions = replace(metered(host), time_limit_s=0.055)
    works = {"kept": host.work(1.0, repeat(9.0))}
    found = time_on_cpu(works, repeats=4, warmup=0, conditions=conditions)
    assert len(found["kept"].samples_ms) == 5


def test_without_a_meter_nothing_is_marked_or_added(host):
    works = {"kept": host.work(1.0, repeat(9.0))}
    found = time_on_cpu(works, repeats=4, warmup=0, conditions=Conditions(spare_s=9.0))
    assert found["kept"] == Timing(tuple(found["kept"].samples_ms))
    assert len(found["kept"].samples_ms) == 4


def test_a_disturbed_try_does_not_make_samples_short(host):
    calls: list[float] = []
    kept = host.work(0.24, (0.0, 12.0, 12.0, 0.0))

    def work() -> None:
        calls.append(host.now_s)
        kept()

    time_on_cpu({"kept": work}, repeats=3, warmup=1, min_sample_ms=1.0, conditions=metered(host))
    assert len(calls) == 1 + timer.METERED_TRIES + 3 * 4


def test_slow_work_is_tried_once(host):
    calls: list[int] = []
    slow = host.work(2 * timer.MAX_TRIES_MS)
    works = {"slow": lambda: (calls.append(1), slow())}
    time_on_cpu(works, repeats=2, warmup=0, min_sample_ms=1.0, conditions=metered(host))
    assert len(calls) == 1 + 2
