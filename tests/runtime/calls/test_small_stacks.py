"""Native code runs in threads whose stacks are smaller than the memory that it takes there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm_python import warm_python
from tilesmith.runtime.calls.reader import process_readers
from tilesmith.settings import Settings

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="others do not tell"),
    pytest.mark.skipif(
        process_readers().get(Path(Settings().cache_dir)) is None,
        reason=process_readers().obstacle,
    ),
]
CODE = """
import threading
import torch
from examples.matmul import matmul

torch.set_num_threads({num_threads})
results = []

def work(*args):
    for call in (matmul, matmul, matmul.bind(args).compile_config()):
        results.append(call(*args))

for size in (160, 512):
    x, y = torch.randn(2, size, size).unbind()
    work(x, y)  # compiled by a thread that has room
    for kib in (64, 256, 1024):
        threading.stack_size(kib << 10)
        for _ in range(2):
            thread = threading.Thread(target=work, args=(x, y))
            thread.start()
            thread.join()
    wanted = x.double() @ y.double()
    assert len(results) == 21
    assert all((result - wanted).abs().max() < 1e-3 for result in results)
    results.clear()
print("right")
"""


@pytest.mark.parametrize("num_threads", [1, 2])
def test_products_in_threads_with_small_stacks(num_threads: int):
    command = [*warm_python(), "-c", CODE.format(num_threads=num_threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
