"""Counts traces: what a call costs beyond a launch; and whether native code reads arguments."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilesmith.compiler import specialization
from tilesmith.runtime.calls.reader import process_readers


@pytest.fixture
def needs_reader() -> Iterator[None]:
    """Afterwards it is known whether the machine can compile the reader."""
    yield
    if process_readers().obstacle:
        pytest.skip(process_readers().obstacle)


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels traced since the test began, one entry per trace."""
    seen: list[str] = []
    original = specialization.trace_kernel

    def counted(request):
        seen.append(request.kernel.source.tree.name)
        return original(request)

    monkeypatch.setattr(specialization, "trace_kernel", counted)
    return seen
