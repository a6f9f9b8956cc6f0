"""A new process for every request: a fork of one that has imported what all of them need.

The server that forks has touched no device and runs no threads. Where forking is not safe, and
where it is not wanted, each process starts from nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from typing_extensions import Self

from tilesmith.bench.plan import Options
from tilesmith.lab.processes.build_pool import BuildOutcome, BuildPool

FUNCTION = "tilesmith.bench.worker:answer"
WAIT_S = 60.0


class FreshPool(BuildPool):
    """Starts every process from nothing, which takes seconds."""

    can_fork = False


class WorkerProcesses:
    """Answers requests one at a time, each in a process of its own."""

    def __init__(self, options: Options, folder: Path) -> None:
        self._kind = FreshPool if options.use_fresh_processes else BuildPool
        self._variables = _variables(options, folder)
        self._pools: dict[tuple[float, tuple[str, ...]], BuildPool] = {}
        """By the time that a request may take, and what is imported before it."""

    def ask(self, request: object, timeout_s: float, preload: tuple[str, ...] = ()) -> BuildOutcome:
        """What became of a request: a reply, an ErrorReply, or how its process died.

        ``preload`` is as of BuildPool.
        """
        pool = self._pools.get((timeout_s, preload)) or self._start(timeout_s, preload)
        pool.submit("request", request)
        while True:
            outcomes = pool.wait(WAIT_S)
            if outcomes:
                return outcomes[0]

    def close(self) -> None:
        """End all processes."""
        for pool in self._pools.values():
            pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, timeout_s: float, preload: tuple[str, ...]) -> BuildPool:
        pool = self._kind(
            FUNCTION,
            jobs=1,
            timeout_s=timeout_s,
            preload=preload,
            environment=self._variables,
            is_bare=False,
        )
        self._pools[timeout_s, preload] = pool
        return pool


def _variables(options: Options, folder: Path) -> Mapping[str, str]:
    """Settings of workers: the backend, threads, caches in which nothing is found from before."""
    threads = str(torch.get_num_threads())
    found: dict[str, Any] = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    found["TMPDIR"] = str(folder)
    # Asking CUDA itself whether there is a device would make its forks unable to use it.
    found["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    if options.backend:
        found["TILESMITH_BACKEND"] = options.backend
    if not options.use_cache:
        found["TILESMITH_CACHE_DIR"] = str(folder / "cache")
        found["TRITON_CACHE_DIR"] = str(folder / "triton")
    return found
