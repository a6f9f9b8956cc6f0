"""The first kernels of a process, made by several threads at once."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys, threading, torch
import tilesmith, tilesmith.language as hl
from tilesmith.operators import graph_call

sys.setswitchinterval(1e-6)
made = graph_call.ProcessCalls.__init__
both = threading.Barrier(2)

def slow(self):
    # The other thread gets its chance while this one registers.
    threading.Event().wait(0.2)
    made(self)

graph_call.ProcessCalls.__init__ = slow
failed = []

def make():
    def double(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * 2
        return out
    both.wait()
    try:
        tilesmith.kernel(double)
    except BaseException as error:
        failed.append(repr(error))

threads = [threading.Thread(target=make) for _ in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
print(failed)
"""


def test_operators_are_registered_once() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.stdout == "[]\n", ended.stdout + ended.stderr
