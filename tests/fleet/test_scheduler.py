"""Slots and lanes, with searches that are functions of the test."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.fleet.records import Claims, SharedArchive
from tilesmith.fleet.scheduler import Fleet, choose_finalists, require_results
from tilesmith.fleet.tuning import make_task
from tilesmith.fleet.work import FleetError, Kind, LaneReport, Slot, Task
from tilesmith.jit.tuner import TuneRequest
from tilesmith.runtime.device import describe_device, target_of
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.store.winners import Winners
from tilesmith.tune.places import LocalPlace, Place
from tilesmith.tune.result import StopReason, TuneResult

HERE = target_of(torch.device("cpu"))
KIND = Kind(HERE, describe_device(HERE))
OTHER = Kind(HERE, "another machine, 4 threads")
FIRST = Config(block_sizes=[8])
SECOND = Config(block_sizes=[16])


@helion.kernel
def doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


@dataclass
class FakeLane:
    name: str
    kind: Kind = KIND
    loss: str = ""
    can_revive: bool = False
    place: Place = field(default_factory=LocalPlace)

    def revive(self, is_wanted: Any) -> bool:
        self.loss = "" if self.can_revive else self.loss
        return self.can_revive

    def close(self) -> None:
        pass


@pytest.fixture
def task(tmp_path: Path) -> Any:
    def make(kind: Kind = KIND, size: int = 64) -> Task:
        keywords = {"cache_dir": str(tmp_path)}
        return make_task((doubled, (torch.ones(size),)), kind, TuneRequest(True, 8.0, keywords))

    return make


def outcome(config: Config, ms: float) -> Outcome:
    return Outcome(Candidate(config), Verdict.OK, median_ms=ms, low_ms=ms, high_ms=ms)


def report(lane: str, *pairs: tuple[Config, float], default_ms: float = 1.0) -> LaneReport:
    best = min(pairs, key=lambda pair: pair[1])
    result = TuneResult(best[0], StopReason.FINISHED, ms=best[1])
    return LaneReport(lane, result, tuple(outcome(*pair) for pair in pairs), default_ms)


def run(tasks: list[Task], lanes: list[FakeLane], search: Any) -> tuple[list[Any], list[str]]:
    lines: list[str] = []
    return Fleet(tasks, lanes, lines.append, search).run(), lines


def test_lanes_to_spare_search_one_task_together_and_the_finals_decide(task: Any) -> None:
    slots: list[Slot] = []

    def search(slot: Slot, lane: FakeLane, *_: Any) -> LaneReport:
        slots.append(slot)
        if slot.finalists:
            return report(lane.name, (SECOND, 0.9))
        return report(lane.name, (FIRST, 0.5), (SECOND, 0.55))

    (found,), _ = run([task()], [FakeLane("a"), FakeLane("b"), FakeLane("c")], search)
    assert sorted(slot.number for slot in slots if not slot.finalists) == [0, 1, 2]
    assert [set(slot.finalists) for slot in slots if slot.finalists] == [{FIRST, SECOND}]
    assert (found.result.config, found.num_measured) == (SECOND, 2)


def test_times_of_a_slow_device_are_not_compared_with_those_of_another(task: Any) -> None:
    slow = report("slow", (FIRST, 5.0), default_ms=10.0)
    quick = report("quick", (SECOND, 0.9), default_ms=1.0)
    assert choose_finalists([quick, slow], task())[0] == FIRST


def test_a_slot_of_a_lost_lane_goes_to_another_with_the_time_that_is_left(task: Any) -> None:
    seen: list[tuple[str, float]] = []
    finals: list[str] = []
    a_is_gone = threading.Event()

    def search(slot: Slot, lane: FakeLane, *_: Any) -> LaneReport:
        if slot.finalists:  # two lanes have measured: they are compared on one
            finals.append(lane.name)
            return report(lane.name, (FIRST, 0.5))
        seen.append((lane.name, slot.budget_s))
        if lane.name == "a":
            lane.loss = "the node died"
            a_is_gone.set()
            return report("a", (FIRST, float("inf")))
        assert a_is_gone.wait(10)
        return report(lane.name, (FIRST, 0.5), (SECOND, 0.55))

    lanes = [FakeLane("a"), FakeLane("b")]
    first, second = task(), task(size=65)
    found, lines = run([first, second], lanes, search)
    assert [one.result.ms for one in found] == [0.5, 0.5]
    assert {name for name, _ in seen} == {"a", "b"}
    assert len(seen) == 3
    assert finals == ["b"]
    assert all(0.0 < budget <= 8.0 for _, budget in seen)
    losses = [loss for one in found for loss in one.losses]
    assert losses == ["a: the node died"]
    assert "a is left out: the node died" in lines


def test_a_lane_that_comes_back_works_on(task: Any) -> None:
    calls: list[str] = []

    def search(slot: Slot, lane: FakeLane, *_: Any) -> LaneReport:
        calls.append(lane.name)
        if len(calls) == 1:
            lane.loss = "preempted"
        return report(lane.name, (FIRST, 0.5))

    (found,), _ = run([task()], [FakeLane("a", can_revive=True)], search)
    assert len(calls) == 2
    assert found.result.ms == 0.5


def test_without_any_lane_left_the_text_says_how_to_go_on(task: Any) -> None:
    def search(slot: Slot, lane: FakeLane, *_: Any) -> LaneReport:
        lane.loss = "the node died"
        return LaneReport("a", TuneResult(FIRST, StopReason.NO_RUNNER), (), None)

    found, _ = run([task()], [FakeLane("a")], search)
    with pytest.raises(FleetError) as caught:
        require_results(found)
    assert str(caught.value) == (
        "no worker is left for doubled(x: float32[64]):\n  a: the node died\n"
        "what was measured is in the journal; the same command goes on from there"
    )


def test_kinds_of_device_have_tasks_journals_and_winners_of_their_own(
    task: Any, tmp_path: Path
) -> None:
    def search(slot: Slot, lane: FakeLane, archive: SharedArchive, *_: Any) -> LaneReport:
        assert slot.task.kind == lane.kind
        ms, config = (0.5, FIRST) if lane.kind == KIND else (0.1, SECOND)
        archive.append(outcome(config, ms))
        found = report(lane.name, (config, ms))
        archive.commit(found.result)
        return found

    lanes = [FakeLane("here"), FakeLane("there", OTHER)]
    run([task(), task(OTHER)], lanes, search)
    winners = {winner.key.device: winner for winner in Winners(tmp_path).entries()}
    assert {name: winner.median_ms for name, winner in winners.items()} == {
        KIND.device: 0.5,
        OTHER.device: 0.1,
    }
    assert winners[OTHER.device].config == SECOND
    again = SharedArchive(task(OTHER))
    assert again.recall(SECOND) is not None
    assert again.recall(FIRST) is None  # measured, but on the other kind


def test_an_error_of_a_search_ends_all_and_is_raised(task: Any) -> None:
    def search(slot: Slot, lane: FakeLane, *_: Any) -> LaneReport:
        raise ZeroDivisionError("of ours")

    with pytest.raises(ZeroDivisionError, match="of ours"):
        run([task()], [FakeLane("a"), FakeLane("b")], search)


def test_a_config_is_tried_by_one_lane_at_a_time(task: Any) -> None:
    made = task()
    archive = SharedArchive(made)
    default = Config(block_sizes=[64])
    claims = Claims(archive, default)
    first, second = claims.filter(0, None), claims.filter(1, None)
    assert first(FIRST)
    assert first(FIRST)
    assert second(FIRST) is None
    assert first(default)
    assert second(default)
    archive.append(outcome(FIRST, 0.5))
    assert second(FIRST)  # its time is known: the other lane learns it for nothing
    known = archive.recall(FIRST)
    assert known is not None
    assert known.is_recalled
    assert second(SECOND)
    claims.release(1)
    assert first(SECOND)
    refused = claims.filter(2, lambda config: None)
    assert refused(Config(block_sizes=[2])) is None


def test_the_best_of_all_lanes_is_stored_before_the_finals(task: Any, tmp_path: Path) -> None:
    archive = SharedArchive(task())
    threads = [
        threading.Thread(target=archive.commit, args=[report("x", pair).result])
        for pair in ((FIRST, 0.4), (SECOND, 0.6))
    ]
    for thread in threads:
        thread.start()
        thread.join()
    (winner,) = Winners(tmp_path).entries()
    assert (winner.config, winner.median_ms) == (FIRST, 0.4)
    archive.is_final = True
    archive.commit(report("x", (SECOND, 0.6)).result)
    (winner,) = Winners(tmp_path).entries()
    assert winner.config == SECOND
