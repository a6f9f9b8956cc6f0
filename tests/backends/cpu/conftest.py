"""Every kernel that tests of the CPU backend compile has a well-formed loop IR."""

from __future__ import annotations

import pytest

from tilesmith.backends.cpu import backend
from tools.verify_loop_ir import lower_and_verify


@pytest.fixture(autouse=True)
def verified_loop_ir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "lower_kernel", lower_and_verify)
