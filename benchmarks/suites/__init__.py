"""The operators of the benchmark, one file for each family."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.suites import (
    attention,
    elementwise,
    founding,
    jagged,
    losses,
    narrow_products,
    products,
    recurrence,
    rows,
)
from tilesmith.bench.case import Suite

FAMILIES = (
    elementwise,
    rows,
    losses,
    products,
    narrow_products,
    attention,
    jagged,
    recurrence,
    founding,
)


def suite() -> Suite:
    """All of them, in the order of the families."""
    found = (
        replace(one, family=family.__name__.rpartition(".")[2])
        for family in FAMILIES
        for one in family.operators()
    )
    return Suite("gallery", tuple(found))
