"""Host time of one call with small tensors: ours against torch's own.

    python3 -m benchmarks.launch

Prints microseconds per call (median of batches): on a GPU of the host alone, on a CPU of native
code too, which such small grids run on the calling thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from benchmarks.small_calls import plain_add
from examples.add import add
from examples.softmax import softmax
from tilesmith.measure.statistics import median

BATCH = 200
NUM_BATCHES = 30


def time_us(call: Callable[[], object]) -> float:
    """Median host microseconds of one call; the device is idle before each batch."""
    for _ in range(BATCH):
        call()
    samples: list[float] = []
    for _ in range(NUM_BATCHES):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(BATCH):
            call()
        samples.append((time.perf_counter() - start) / BATCH * 1e6)
    return median(samples)


def main() -> None:
    """Print the table."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y = torch.randn(64, 64, device=device), torch.randn(64, 64, device=device)
    shapes = [torch.randn(n, 64, device=device) for n in range(8, 16)]

    def eight_shapes() -> None:
        for tensor in shapes:
            plain_add(tensor, tensor)

    rows = {
        "torch.add": time_us(lambda: torch.add(x, y)),
        "torch.empty_like": time_us(lambda: torch.empty_like(x)),
        "tilesmith plain add": time_us(lambda: plain_add(x, y)),
        "tilesmith add (broadcasts, promotes)": time_us(lambda: add(x, y)),
        "tilesmith softmax": time_us(lambda: softmax(x)),
        "tilesmith plain add, 8 shapes in turn": time_us(eight_shapes) / len(shapes),
    }
    for name, value in rows.items():
        print(f"{name:38} {value:8.2f} us")


if __name__ == "__main__":
    main()
