"""Benchmarks on a GPU: graphs are timed, and what breaks the device breaks its own row alone."""

from __future__ import annotations

import pytest

from tests.bench.tiny_suite import NAME, suite
from tilesmith.bench.plan import Options, make_plan
from tilesmith.bench.row import Cause, Row, Status
from tilesmith.bench.run import run_plan

MODULE = "tests.bench.broken_implementations"


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    broken = ("reads_outside", "takes_all_memory", "segfaults", "waits_for_its_result")
    options = Options(
        suite=NAME,
        kernels=("double",),
        input_ids=(1,),
        only=("broken*", "tilesmith", "eager", "by_hand"),
        impls=tuple(f"{MODULE}:{name}" for name in broken),
        device="cuda",
        timeout_s=120.0,
    )
    found = run_plan(make_plan(suite(), options), options)
    return {row.implementation.removeprefix("broken_implementations."): row for row in found}


@pytest.mark.parametrize("name", ["tilesmith", "eager", "by_hand"])
def test_what_works_is_timed_by_graphs_with_cold_caches(rows: dict[str, Row], name: str) -> None:
    row = rows[name]
    assert (row.status, row.reason, row.error) == (Status.OK, "", 0.0)
    assert row.timer == "graph, cold"
    assert row.latency_ms
    assert row.speedup
    assert row.roofline_ms


def test_what_cannot_be_captured_is_timed_by_events(rows: dict[str, Row]) -> None:
    row = rows["waits_for_its_result"]
    assert (row.status, row.timer) == (Status.OK, "events, cold")
    assert "no graph can be captured of it" in row.reason


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("reads_outside", Cause.EXCEPTION),
        ("takes_all_memory", Cause.OUT_OF_MEMORY),
        ("segfaults", Cause.CRASH),
    ],
)
def test_what_breaks_the_device_is_a_row(rows: dict[str, Row], name: str, cause: Cause) -> None:
    row = rows[name]
    assert (row.status, row.cause, row.blame) == (Status.FAILED, cause, "theirs failed")
    assert row.latency_ms is None
