"""Calls in a fork of a process that has used threads: they are not there any more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.warm_python import warm_python

FORKS = """
import os, threading
import torch
import tilesmith
from tests.tune.kernels import add_function

torch.set_num_threads(1)  # what eager does with threads after a fork is its own affair
kernel = tilesmith.kernel(add_function, num_threads=2)
x = torch.arange(1 << 16, dtype=torch.float32)
for work in (lambda: kernel(x, x), lambda: threads[0].join()):
    threads = [threading.Thread(target=kernel, args=(x, x))]
    threads[0].start()
    work()
pid = os.fork()
if pid == 0:
    os._exit(0 if torch.equal(kernel(x, x), x + x) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), bool(torch.equal(kernel(x, x), x + x)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="others do not fork")
def test_a_fork_of_a_process_that_used_threads_computes_by_itself():
    # A call that waits for threads of its parent would never end.
    done = subprocess.run(
        [*warm_python(), "-c", FORKS],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])},
    )
    assert (done.stdout, done.stderr) == ("0 True\n", "")
