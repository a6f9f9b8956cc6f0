"""Keys and outcomes for the tests of the store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilesmith.schedule.config import Config
from tilesmith.store.key import StoreKey
from tilesmith.store.outcome import Candidate, Outcome, Resources, Verdict

KEY = StoreKey(
    kernel="matmul",
    source="5" * 16,
    program="7" * 16,
    facts="f" * 16,
    shapes="tile_m=1024 tile_n=1024; x:bf16",
    arguments="x: bfloat16[1024, 1000], y: bfloat16[1000, 1024]",
    settings="static_shapes=True",
    target="cuda:90",
    device="H200",
    regime="cold",
    toolchain=(("tilesmith", "0.1.0"), ("triton", "3.6.0")),
)


def other(**fields: Any) -> StoreKey:
    return replace(KEY, **fields)


def config(number: int = 1, **more: Any) -> Config:
    return Config(block_sizes=[16 << number % 4, 32], num_warps=4, tag=number, **more)  # pyright: ignore[reportCallIssue]


def timed(number: int = 1, ms: float = 1.5) -> Outcome:
    candidate = Candidate(config(number), "generation 2", 1.25)
    samples = (ms, ms * 1.1, ms * 1.2)
    resources = Resources(49152, 128, 0)
    return Outcome(candidate, Verdict.OK, "", samples, ms, ms * 0.9, ms * 1.1, 0.75, resources)


def failed(number: int, verdict: Verdict = Verdict.WRONG) -> Outcome:
    return Outcome(Candidate(config(number)), verdict, "it is off by 3")
