"""A search as the tuner would tell it, made of fixed numbers: what all report tests watch."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Outcome, Resources, Verdict
from tilesmith.tune.listener import Generation, Listener, Progress, SearchStart
from tilesmith.tune.result import Final, Standing, StopReason, TuneResult

DEFAULT = Config(block_sizes=[1], num_warps=4, num_stages=1, pid_type="flat")
WINNER = Config(block_sizes=[2], num_warps=8, num_stages=1, pid_type="flat", range_flattens=[None])


def make_start(**changes) -> SearchStart:
    values: dict[str, Any] = {
        "kernel": "softmax",
        "target": "cuda:90",
        "device": "NVIDIA H200 (cuda:90)",
        "method": "ModelFirstSearch",
        "seed": 0,
        "budget_s": 15.0,
        "judge": "fp64 reference, 8 of 1024 programs",
        "seeds": (
            Candidate(DEFAULT, "default", 0.08),
            Candidate(WINNER, "model", 0.06),
            Candidate(WINNER.updated(num_warps=16), "model", 0.07),
        ),
        "space_size": 3.1e6,
        "roofline_ms": 0.0559,
        "arguments": "x: bfloat16[8192, 8192]",
    }
    return SearchStart(**{**values, **changes})


def timed(config: Config, ms: float, predicted: float | None = None, **more) -> Outcome:
    return Outcome(
        Candidate(config, "model", predicted),
        Verdict.OK,
        samples_ms=(ms,),
        median_ms=ms,
        low_ms=ms * 0.99,
        high_ms=ms * 1.01,
        build_s=0.25,
        resources=Resources(32768, 128, 0),
        **more,
    )


def failed(config: Config, verdict: Verdict, reason: str) -> Outcome:
    return Outcome(Candidate(config, "model", 0.1), verdict, reason)


def make_result(**changes) -> TuneResult:
    values: dict[str, Any] = {
        "config": WINNER,
        "stop": StopReason.BUDGET,
        "ms": 0.0581,
        "spread": 0.012,
        "noise": 0.004,
        "ties": 1,
        "num_tried": 120,
        "num_recalled": 7,
        "counts": {Verdict.OK: 100, Verdict.WRONG: 3, Verdict.INFEASIBLE: 17},
        "seconds": 15.24,
        "budget_s": 15.0,
        "judge": "fp64 reference, 8 of 1024 programs",
        "default_ms": 0.0735,
        "predicted_ms": 0.06,
        "roofline_ms": 0.0559,
    }
    return TuneResult(**{**values, **changes})


def make_final() -> Final:
    standings = (
        Standing(WINNER.updated(num_warps=16), 0.0579, 0.0576, 0.0583, is_tied=True),
        Standing(WINNER, 0.0581, 0.0578, 0.0585, is_tied=True),
        Standing(DEFAULT, 0.0735, 0.0730, 0.0741),
    )
    return Final(standings[1], standings, noise=0.002)


def outcomes(count: int = 120, seed: int = 1) -> list[Outcome]:
    """Times that fall and scatter, a few failures among them."""
    rng = random.Random(seed)
    made = [timed(DEFAULT, 0.0735, 0.08)]
    for number in range(1, count):
        config = WINNER.updated(block_sizes=[number], num_warps=rng.choice([4, 8, 16]))
        if rng.random() < 0.12:
            verdict = rng.choice([Verdict.INFEASIBLE, Verdict.WRONG, Verdict.BUILD_ERROR])
            made.append(failed(config, verdict, f'needs <much> & "more" of {number}'))
            continue
        ms = 0.0581 + rng.lognormvariate(-4.4 - number / 60, 1.1)
        made.append(timed(config, ms, ms * rng.lognormvariate(0, 0.2)))
    return made


def tell(listener: Listener, *, start: SearchStart | None = None, count: int = 120) -> None:
    """The whole search, in generations of 40."""
    listener.on_start(start or make_start())
    best: Outcome | None = None
    batch: list[Outcome] = []
    for number, outcome in enumerate(outcomes(count), 1):
        if best is None or outcome.time_ms < best.time_ms:
            best = outcome
        elapsed = 15.0 * number / count
        generation = (number - 1) // 40
        progress = Progress(elapsed, 15.0, number, generation, best, num_in_flight=2)
        listener.on_outcome(outcome, progress)
        batch.append(outcome)
        if number % 40 == 0:
            listener.on_generation(make_generation(generation, elapsed, batch, best))
            batch = []
    listener.on_finals(make_final())
    listener.on_end(make_result())


def make_generation(
    number: int, elapsed: float, batch: list[Outcome], best: Outcome | None
) -> Generation:
    times = sorted(o.time_ms for o in batch if o.verdict.is_timed)
    counts = Counter(outcome.verdict for outcome in batch)
    middle = times[len(times) // 2]
    return Generation(number, elapsed, len(batch), 3, counts, times[0], middle, times[-1], best)
