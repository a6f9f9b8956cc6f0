"""Random host code: recognised calls give what torch does, down to which results share memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jit.random_host_code import check_calls


@pytest.mark.parametrize("seed", range(24))
def test_calls_give_what_torch_does(seed: int, tmp_path: Path) -> None:
    check_calls(seed, tmp_path, "cpu")
