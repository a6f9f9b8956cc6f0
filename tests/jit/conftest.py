"""Counts traces: what a call costs beyond a launch."""

from __future__ import annotations

import pytest

from tilesmith.compiler import specialization


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
