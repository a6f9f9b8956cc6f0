"""``python -m tools.soak --minutes 60 [--device cuda]``.

Threads call kernels with shapes in turn and check results, forward and backward. Kernels are made,
differentiated and dropped. Searches run in between. Samples are printed as they are taken; the end
compares the last third with the second and exits with 1 if something grew.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tools.soak.sample import Sample, judge, take_sample
from tools.soak.workload import Counts, call_kernels, make_and_drop, search


def _watched(target: Callable[..., None], counts: Counts, *args: object) -> threading.Thread:
    def run() -> None:
        try:
            target(counts, *args)
        except BaseException as error:  # told at the end
            counts.problems.append(f"{target.__name__} ended by {type(error).__name__}: {error}")

    return threading.Thread(target=run, daemon=True)


def soak(minutes: float, device: str, num_callers: int) -> tuple[list[Sample], list[str]]:
    """Run for so long; the samples and the problems."""
    counts, stop, begin = Counts(), threading.Event(), time.monotonic()
    interval = min(30.0, minutes * 60 / 12)
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(dir=Path(tempfile.gettempdir()).parent) as folder:
        threads = [
            *(
                _watched(call_kernels, counts, stop, device, number)
                for number in range(num_callers)
            ),
            _watched(make_and_drop, counts, stop, device, Path(folder)),
            _watched(search, counts, stop, device),
        ]
        for thread in threads:
            thread.start()
        while time.monotonic() - begin < minutes * 60 and all(t.is_alive() for t in threads):
            time.sleep(interval)
            seconds, times = time.monotonic() - begin, counts.take_times()
            samples.append(take_sample(seconds, *times, tempfile.gettempdir()))
            print(samples[-1].line(), flush=True)
        stop.set()
        for thread in threads:
            thread.join()
    print(
        f"{sum(sample.calls for sample in samples)} calls, {counts.checked} compared with fp64, "
        f"{counts.made} kernels made, differentiated and dropped, {counts.searches} searches"
    )
    return samples, judge(samples, counts.problems)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="that call kernels")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # A temporary folder of our own, in which others leave nothing.
        tempfile.tempdir = os.environ["TMPDIR"] = str(Path(folder, "tmp"))
        Path(tempfile.tempdir).mkdir()
        _, problems = soak(options.minutes, options.device, options.threads)
    print("\n".join(problems) or "nothing grew, nothing was wrong")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
