"""Searches after the first find processes that are up, and launches find code that is built."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from tests.lab.processes.living import children, eventually
from tests.tune.kernels import make_add
from tests.tune.test_faults import block, faults, own_cache, search
from tilesmith.lab.processes.build_pool import idle_processes
from tilesmith.runtime.native.machine_code import CodeMaker

__all__ = ["faults", "own_cache"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
X, Y = torch.randn(1000), torch.randn(1000)


@pytest.fixture(autouse=True)
def nothing_is_left():
    idle_processes().close()
    yield
    idle_processes().close()


def refuse(self: CodeMaker, text: str) -> bytes:
    raise AssertionError("compiled again")


def test_the_first_call_compiles_nothing_and_a_second_search_starts_no_process(own_cache):
    others = set(children(os.getpid()))
    kernel = make_add()
    first, _ = search(kernel, (X, Y), [256, 128])
    kept = set(children(os.getpid())) - others
    assert len(kept) == 2
    assert first.timeline.seconds["runner"] > 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CodeMaker, "make_object", refuse)
        assert torch.equal(kernel(X, Y), X + Y)
        assert block(first.config) in (256, 128)
        for stored in (own_cache / "native").iterdir():
            stored.unlink()
        with pytest.raises(AssertionError, match="compiled again"):
            make_add(config=first.config)(X, Y)
    second, history = search(make_add(), (X[:500], Y[:500]), [256, 64])
    assert set(children(os.getpid())) - others == kept
    assert second.timeline.seconds["runner"] == 0.0
    assert [trial.outcome.verdict.is_timed for trial in history.trials] == [True, True]
    idle_processes().close()
    assert eventually(lambda: not set(children(os.getpid())) & kept)


def test_a_runner_in_which_something_went_wrong_is_not_kept(faults):
    before = set(children(os.getpid()))
    faults(c2="wrong")
    result, _ = search(make_add(), (X, Y), [256, 128])
    assert result.is_measured
    (builder,) = set(children(os.getpid())) - before
    assert "build_server" in Path(f"/proc/{builder}/cmdline").read_text()
