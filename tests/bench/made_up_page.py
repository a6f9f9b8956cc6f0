"""The page of the made-up rows: several files look at it, and it takes seconds to draw."""

from __future__ import annotations

from functools import cache

from tests.bench.made_up_rows import make_rows
from tilesmith.bench.journal import Results
from tilesmith.bench.report.html import make_page

OPTIONS = {"regime": "warm", "kernels": ["a", "b"], "device": "", "use_cache": False}
RUN = {"started": "2026-01-02", "software": {"torch": "2.11"}, "options": OPTIONS}


@cache
def made_up_page() -> str:
    """The same text every time."""
    return make_page(Results(make_rows(), RUN))
