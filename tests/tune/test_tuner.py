"""The search loop against stand-ins: what it tries, when it stops, what it commits."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from math import inf

import pytest

from tests.tune.fakes import (
    Clock,
    FakeBuilder,
    FakeRecords,
    FakeRunner,
    ListSearch,
    Spy,
    config,
    emit,
)
from tilesmith.settings import Settings
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.tune.context import Deadline, EmittedCandidate
from tilesmith.tune.jobs import BuildReply
from tilesmith.tune.listener import SearchStart
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.result import StopReason, TuneResult, summarize_rejected
from tilesmith.tune.trials import Series
from tilesmith.tune.tuner import TuneContext, Tuner

SIZES = [1, 2, 4, 8, 16, 32, 64, 128]


def time_of(key: str) -> float:
    """Block 16 is the best, at 1 ms; a factor of two away costs 30% each."""
    size = int(key[key.index("[") + 1 : key.index("]")])
    return 1.3 ** abs(size.bit_length() - 5)


class Setup:
    """A tuner with stand-ins around it."""

    def __init__(self, sizes: list[int] = SIZES, budget_s: float = 60.0, **options: object) -> None:
        self.clock = Clock()
        self.builder = FakeBuilder(self.clock)
        self.runner = FakeRunner(self.clock, time_of)
        self.records = FakeRecords()
        self.spy = Spy()
        self.search = ListSearch([Candidate(config(size)) for size in sizes])
        settings = Settings.from_environment(options, {})
        self.options = TuneOptions(settings, budget_s)
        self.obstacles: dict[int, str] = {}
        self.dependences: dict[int, str] = {}
        self.overlaps = True
        self.roofline_ms: float | None = None
        self.emit = emit

    def make(self) -> Tuner:
        context = TuneContext(
            emit=self.emit,
            builder=self.builder,
            runner=self.runner,
            records=self.records,
            prepare=lambda: SearchStart("k", "cpu", "", "ListSearch", 0, 1.0, "nothing"),
            keep=lambda config: config,
            find_obstacle=lambda candidate: self.obstacles.get(candidate.config.block_sizes[0], ""),
            default=config(0),
            complexity=lambda config: config.block_sizes[0],
            roofline_ms=self.roofline_ms,
            overlaps=self.overlaps,
            find_dependence=lambda x: self.dependences.get(x.config.block_sizes[0], ""),
        )
        deadline = Deadline(self.options.budget_s, self.clock)
        return Tuner(self.search, context, self.options, deadline, self.spy)

    def run(self) -> TuneResult:
        return self.make().run()

    def verdict(self, size: int) -> Verdict:
        return next(o.verdict for o in self.search.told if o.config == config(size))


def test_the_fastest_wins_and_every_outcome_is_told_and_kept():
    setup = Setup()
    result = setup.run()
    assert result.config == config(16)
    assert result.stop is StopReason.FINISHED
    assert [o.config for o in setup.search.told] == [config(size) for size in SIZES]
    assert setup.records.appended == setup.search.told
    assert [record for record, _ in setup.spy.all("outcome")] == setup.search.told
    assert setup.records.committed[-1] == result


def test_a_measurement_says_whether_others_had_the_cores():
    setup = Setup()
    setup.runner.is_busy = lambda key: "[4]" in key
    setup.run()
    assert [o.config for o in setup.records.appended if o.is_disturbed] == [config(4)]


def test_half_of_its_requests_disturb_a_measurement():
    for num_busy in (0, 1, 2, 3, 4):
        series = Series((5, 9))
        assert series.is_disturbed((5 + num_busy, 9 + 4)) is (num_busy >= 2)


def test_slower_ones_are_dropped_after_few_samples():
    setup = Setup(sizes=[16, 1, 2, 4, 32, 128])
    setup.run()
    dropped = [o for o in setup.search.told if o.verdict is Verdict.SLOWER]
    assert len(dropped) == 5
    assert max(len(o.samples_ms) for o in dropped) <= 8
    assert all(o.reason.endswith("times the best") for o in dropped)


def test_what_there_is_no_time_to_run_is_no_outcome():
    setup = Setup()
    setup.runner.ends_after = 3
    result = setup.run()
    assert result.stop is StopReason.BUDGET
    assert result.config == config(4)
    assert [o.config for o in setup.records.appended] == [config(1), config(2), config(4)]
    assert not any(o.verdict is Verdict.HUNG for o in setup.search.told)
    assert setup.clock.now < setup.options.budget_s


def test_a_generation_is_summed_up_when_the_search_moves_on():
    setup = Setup()
    setup.run()
    first, second = setup.spy.all("generation")
    assert (first.number, first.num_tried, first.num_failed) == (0, 4, 0)
    assert (first.num_replaced, second.num_replaced) == (4, 1)
    assert (second.number, second.num_tried) == (1, 4)
    assert second.best.config == config(16)
    assert second.min_ms < second.mid_ms < second.max_ms


@pytest.mark.parametrize(
    "verdict", [Verdict.WRONG, Verdict.NONDETERMINISTIC, Verdict.CRASHED, Verdict.HUNG]
)
def test_a_bad_candidate_costs_only_itself(verdict: Verdict):
    setup = Setup(autotune_benchmark_timeout=1)
    setup.runner.verdicts[str(config(16))] = verdict
    result = setup.run()
    assert setup.verdict(16) is verdict
    assert result.config in (config(8), config(32))
    assert len(setup.search.told) == len(SIZES)


def test_after_a_crash_the_champion_is_checked_again_before_it_is_timed():
    setup = Setup(sizes=[16, 1, 8, 4])
    setup.runner.verdicts[str(config(1))] = Verdict.CRASHED
    assert setup.run().config == config(16)
    assert setup.runner.num_starts == 2


@pytest.mark.parametrize("verdict", [Verdict.BUILD_ERROR, Verdict.BUILD_TIMEOUT])
def test_what_does_not_build_is_not_run(verdict: Verdict):
    setup = Setup()
    setup.builder.failures[str(config(16))] = BuildReply(verdict, "no")
    setup.run()
    assert setup.verdict(16) is verdict
    assert not any(str(config(16)) in keys for keys in setup.runner.jobs)


def test_an_exception_while_emitting_is_a_build_error():
    def fail(candidate: Candidate):
        if candidate.config == config(16):
            raise KeyError("slot")
        return emit(candidate)

    setup = Setup()
    setup.emit = fail
    assert setup.run().config in (config(8), config(32))
    assert setup.verdict(16) is Verdict.BUILD_ERROR
    outcome = next(o for o in setup.search.told if o.config == config(16))
    assert outcome.reason == "KeyError: 'slot'"


def test_what_cannot_fit_is_not_built():
    setup = Setup()
    setup.obstacles = {128: "needs 300 KiB of shared memory, the device has 227 KiB"}
    setup.run()
    assert setup.verdict(128) is Verdict.INFEASIBLE


def test_what_depends_on_the_order_of_programs_is_left_out_and_counted():
    setup = Setup()
    setup.dependences = {16: "programs add floats to `out` in any order", 8: "the same"}
    result = setup.run()
    assert setup.verdict(16) is setup.verdict(8) is Verdict.ORDER_DEPENDENT
    assert result.config not in (config(16), config(8))
    assert result.counts[Verdict.ORDER_DEPENDENT] == 2
    assert "2 order dependent" in summarize_rejected(result.counts, ())


def test_the_budget_ends_the_search_and_what_is_known_is_committed():
    setup = Setup(sizes=[16] + [1 << n for n in range(5, 25)], budget_s=1.0)
    result = setup.run()
    assert result.stop is StopReason.BUDGET
    assert result.config == config(16)
    assert setup.records.committed
    assert len(setup.search.told) < 21
    assert setup.clock.now < 2.0


def test_a_candidate_cut_off_by_the_budget_has_no_verdict():
    setup = Setup(sizes=[16, 8], budget_s=1.0)
    setup.runner.verdicts[str(config(8))] = Verdict.HUNG
    assert setup.run().config == config(16)
    assert [o.config for o in setup.search.told] == [config(16)]


def test_max_generations():
    setup = Setup(autotune_max_generations=0)
    result = setup.run()
    assert result.stop is StopReason.GENERATIONS
    assert len(setup.search.told) == 4


def test_near_the_roofline_it_stops():
    setup = Setup(sizes=[16, *SIZES[:4]], autotune_stop_at_roofline=0.9)
    setup.roofline_ms = 0.95
    assert setup.run().stop is StopReason.ROOFLINE
    assert len(setup.search.told) == 1


def test_the_first_ctrl_c_ends_the_search_with_its_best():
    setup = Setup()
    setup.runner.before = lambda key: (
        os.kill(os.getpid(), signal.SIGINT) if key == str(config(4)) else None
    )
    result = setup.run()
    assert result.stop is StopReason.INTERRUPTED
    assert result.config == config(4)
    assert setup.records.committed[-1].config == config(4)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_ctrl_c_aborts_after_the_best_is_committed():
    setup = Setup()

    def interrupt_twice(key: str) -> None:
        if key == str(config(4)):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    setup.runner.before = interrupt_twice
    with pytest.raises(KeyboardInterrupt):
        setup.run()
    assert [result.config for result in setup.records.committed] == [config(2)]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_exception_in_the_search_keeps_the_best():
    setup = Setup()
    asked = setup.search.ask

    def ask(count: int):
        if setup.search.told:
            raise ZeroDivisionError("in the search")
        return asked(count)

    setup.search.ask = ask  # type: ignore[method-assign]
    result = setup.run()
    assert result.stop is StopReason.ERROR
    assert "ZeroDivisionError: in the search" in result.problem
    assert setup.records.committed[-1].config == result.config


def test_an_exception_before_anything_is_known_is_raised():
    setup = Setup()
    setup.search.ask = lambda count: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        setup.run()


def test_a_runner_that_does_not_start_is_reported():
    setup = Setup()
    setup.runner.is_lost = True
    result = setup.run()
    assert result.stop is StopReason.NO_RUNNER
    assert result.problem == "no such device"
    assert not setup.records.committed


def test_when_all_fail_nothing_is_committed():
    setup = Setup()
    setup.runner.verdicts = {str(config(size)): Verdict.WRONG for size in SIZES}
    result = setup.run()
    assert result.stop is StopReason.FINISHED
    assert not result.is_measured
    assert not setup.records.committed


def known(size: int, ms: float, verdict: Verdict = Verdict.OK) -> Outcome:
    outcome = Outcome(Candidate(config(size)), verdict, "before", is_recalled=True)
    return replace(outcome, median_ms=ms, low_ms=ms, high_ms=ms)


def test_bad_ones_are_recalled_and_good_ones_are_measured_again():
    setup = Setup(sizes=[16, 8, 4, 2])
    setup.search.per_generation = 1
    outcomes = [
        known(16, 1.0), known(8, 1.02), known(4, 3.0), known(2, inf, Verdict.CRASHED),
    ]  # fmt: skip
    setup.records.known = {outcome.config: outcome for outcome in outcomes}
    setup.run()
    recalled = {o.config.block_sizes[0]: o.is_recalled for o in setup.search.told}
    assert recalled == {16: False, 8: False, 4: True, 2: True}
    assert [o.config for o in setup.records.appended] == [config(16), config(8)]


def test_the_default_is_measured_again_however_slow_it_once_was():
    setup = Setup(sizes=[16, 8])
    setup.search.candidates[0] = Candidate(config(16), "default")
    setup.search.per_generation = 1
    setup.records.known = {config(16): known(16, 9.0), config(8): known(8, 1.0)}
    setup.run()
    assert [o.config for o in setup.records.appended] == [config(16), config(8)]


def test_what_is_remembered_never_wins_over_what_is_measured():
    setup = Setup(sizes=[16, 8])
    setup.search.per_generation = 1
    setup.records.known = {config(8): known(8, 1.6), config(4): known(4, 1.0)}
    setup.runner.times = lambda key: 2.0
    setup.run()
    assert [o.is_recalled for o in setup.search.told] == [False, False]
    setup = Setup(sizes=[8, 16])
    setup.records.known = {config(8): known(8, 1.6), config(4): known(4, 1.0)}
    setup.runner.times = lambda key: 2.0
    assert setup.run().config == config(16)
    assert [o.is_recalled for o in setup.search.told] == [True, False]


def test_builds_stay_ahead_of_timing():
    setup = Setup(sizes=[1 << n for n in range(16)])
    setup.search.per_generation = 16
    setup.run()
    assert setup.builder.most_pending == 4


def test_on_a_cpu_nothing_is_built_while_something_is_timed():
    setup = Setup()
    setup.overlaps = False
    setup.runner.before = lambda key: check_idle()

    def check_idle() -> None:
        assert not setup.builder.num_pending

    setup.search.per_generation = 8
    assert setup.run().config == config(16)


def test_equal_candidates_are_told_apart_by_simplicity():
    setup = Setup(sizes=[64, 32, 16, 8])
    setup.runner.times = lambda key: 1.0
    setup.runner.noise = 0.02
    result = setup.run()
    final = setup.spy.all("finals")[0]
    assert len(final.ties) >= 2
    assert result.config == min((s.config for s in final.ties), key=lambda c: c.block_sizes[0])


class EndlessSearch(ListSearch):
    """Never runs out of candidates; each question takes some time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__([])
        self._clock = clock

    def ask(self, count: int) -> list[Candidate]:
        self._clock.now += 0.01
        self.asked += count
        return [Candidate(config(size)) for size in range(self.asked - count + 1, self.asked + 1)]


def test_a_search_among_infeasible_candidates_ends_with_the_budget():
    setup = Setup(budget_s=5.0)
    setup.search = EndlessSearch(setup.clock)
    setup.obstacles = dict.fromkeys(range(100_000), "too large")
    result = setup.run()
    assert result.stop is StopReason.BUDGET
    assert setup.clock.now < 5.2


def test_the_one_candidate_that_fits_is_measured_meanwhile():
    setup = Setup(budget_s=5.0)
    setup.search = EndlessSearch(setup.clock)
    setup.obstacles = dict.fromkeys(range(100_000), "too large")
    del setup.obstacles[16]
    result = setup.run()
    assert (result.config, result.stop) == (config(16), StopReason.BUDGET)
    first = next(i for i, o in enumerate(setup.search.told) if o.config == config(16))
    assert first < 1000


class FirstOthers(FakeBuilder):
    """Builds the default last of what it has."""

    def collect(self, timeout_s: float) -> list[tuple[EmittedCandidate, BuildReply]]:
        self.queue.sort(key=lambda emitted: emitted.candidate.origin == "default")
        return list(super().collect(timeout_s))


def with_slow_default(budget_s: float) -> Setup:
    """The default (size 8) is submitted first, and built last."""
    setup = Setup(budget_s=budget_s)
    setup.builder = FirstOthers(setup.clock, num_jobs=4)
    origins = [(8, "default"), *((size, "model") for size in (1, 2, 4, 32, 64, 128))]
    setup.search = ListSearch([Candidate(config(size), origin) for size, origin in origins], 8)
    return setup


def test_the_default_is_measured_before_all_others():
    setup = with_slow_default(60.0)
    assert setup.run().config == config(8)
    assert setup.search.told[0].config == config(8)


def test_nothing_wins_against_a_default_that_was_not_measured():
    setup = with_slow_default(60.0)
    tuner = setup.make()
    tuner._ready.note_submitted(Candidate(config(8), "default"))
    tuner._record(Outcome(Candidate(config(1)), Verdict.OK, "", (2.0,), 2.0, 2.0, 2.0))
    assert tuner._best_as_final() is None
    tuner._record(Outcome(Candidate(config(8)), Verdict.BUILD_ERROR, "too large"))
    final = tuner._best_as_final()
    assert final is not None
    assert final.winner.config == config(1)


class NeverDefault(FakeBuilder):
    """Is not done with the default before the end."""

    def collect(self, timeout_s: float) -> list[tuple[EmittedCandidate, BuildReply]]:
        stuck = [emitted for emitted in self.queue if emitted.candidate.origin == "default"]
        self.queue = [emitted for emitted in self.queue if emitted not in stuck]
        built = list(super().collect(timeout_s))
        self.queue += stuck
        return built


def test_others_wait_for_the_default_only_half_of_the_budget():
    setup = with_slow_default(4.0)
    setup.builder = NeverDefault(setup.clock, num_jobs=4)
    result = setup.run()
    sizes = [outcome.config.block_sizes[0] for outcome in setup.search.told]
    assert sorted(sizes) == [1, 2, 4, 32, 64, 128]
    first = setup.spy.all("outcome")[0][1]
    assert 2.0 <= first.elapsed_s < 3.0
    # Which of them would have beaten the default nobody knows.
    assert result.config == config(0)
    assert not setup.records.committed
