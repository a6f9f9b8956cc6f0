"""A place has the processes that build and run the candidates of one search.

The search loop knows what it asks of them; whether they are children of this process, or stand on
another machine, only their place knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tilesmith.backends.interface import TuningNeeds
from tilesmith.lab.processes.build_pool import (
    BuildOutcome,
    BuildPool,
    StartParameters,
    idle_processes,
    start_parameters,
)
from tilesmith.lab.processes.child import RestartingChild
from tilesmith.runtime.native.host_cpu import count_cores
from tilesmith.tune.options import TuneOptions

BUILD_FUNCTION = "tilesmith.tune.runner.build:build_program"
POSTPONE_TORCH = "tilesmith.tune.runner.late_torch:postpone_torch"
RUNNER_MODULE = "tilesmith.tune.runner.main"


class RunnerProcess(Protocol):
    """A process that holds a workload; it fails and comes back as a ``RestartingChild`` does."""

    start_timeout_s: float
    num_starts: int
    ready_at: float

    @property
    def is_ready(self) -> bool:
        """Whether it runs and has said that it is up."""
        ...

    @property
    def is_alive(self) -> bool:
        """Whether it was started and has not ended."""
        ...

    def start(self) -> None:
        """Start it if it does not run; returns at once."""

    def await_ready(self) -> None:
        """Wait until it is up."""

    def send_ahead(self, job: object) -> None:
        """Let it begin with a job; the next request is for this object."""

    def prepare(self, job: object, timeout_s: float) -> Any:
        """Ask a job whose effect every later process needs too."""

    def forget_preparation(self) -> None:
        """Let later processes start as if nothing had been prepared."""

    def request(self, job: object, timeout_s: float) -> Any:
        """The reply to a job."""

    def close(self) -> None:
        """End it."""


class Pool(Protocol):
    """Builds programs in the background."""

    def submit(self, key: str, job: object) -> None:
        """Have a program built."""

    def wait(self, timeout_s: float) -> list[BuildOutcome]:
        """What is done; waits for the first at most so long."""
        ...

    def cancel_all(self) -> None:
        """Forget all jobs."""


class Place(Protocol):
    """Starts processes, and takes them back."""

    @property
    def device(self) -> str:
        """Where workloads are loaded, as its processes name it; empty: where arguments are."""
        ...

    def num_jobs(self, options: TuneOptions) -> int:
        """How many programs are built at a time."""
        ...

    def start_runner(self, options: TuneOptions, device: str) -> RunnerProcess:
        """A process for a device, started or just starting."""
        ...

    def end_runner(self, process: RunnerProcess, *, is_as_new: bool) -> None:
        """It is not needed any more; ``is_as_new``: another search may have it."""

    def start_pool(self, options: TuneOptions, needs: TuningNeeds) -> Pool:
        """What builds."""
        ...

    def end_pool(self, pool: Pool) -> None:
        """It is not needed any more, and has no jobs."""


class LocalPlace:
    """Children of this process, kept for a while between searches.

    Several searches that run at once share the cores for builds: each is one of ``num_lanes``.
    """

    def __init__(self, device: str = "", num_lanes: int = 1) -> None:
        self.device = device
        self._num_lanes = num_lanes
        self._parameters: dict[int, StartParameters] = {}

    def num_jobs(self, options: TuneOptions) -> int:
        """All cores but one for the runner, shared by lanes."""
        return options.build_jobs or max(1, (count_cores() - 1) // self._num_lanes)

    def start_runner(self, options: TuneOptions, device: str) -> RunnerProcess:
        """A child that was kept, or a new one."""
        arguments: Sequence[str] = () if device == "cpu" else (device,)
        environment = child_settings(options)
        kind = ("runner", (RUNNER_MODULE, tuple(arguments)), environment)
        parameters = start_parameters(*kind)
        process: RestartingChild = idle_processes().take(parameters) or RestartingChild(
            RUNNER_MODULE, environment, is_bare=True, arguments=arguments
        )
        self._parameters[id(process)] = parameters
        return process

    def end_runner(self, process: RunnerProcess, *, is_as_new: bool) -> None:
        """Keep it for the next search, or end it."""
        parameters = self._parameters.pop(id(process))
        if is_as_new:
            idle_processes().park(parameters, process)
        else:
            process.close()

    def start_pool(self, options: TuneOptions, needs: TuningNeeds) -> Pool:
        """A build server, started in the background now or kept from before."""
        timeout_s, preload = options.settings.autotune_compile_timeout, find_preloads(needs)
        num_jobs, environment = self.num_jobs(options), child_settings(options)
        details = (BUILD_FUNCTION, num_jobs, timeout_s, preload)
        parameters = start_parameters("builder", details, environment)
        pool: BuildPool = idle_processes().take(parameters) or BuildPool(
            BUILD_FUNCTION,
            jobs=num_jobs,
            timeout_s=timeout_s,
            preload=preload,
            environment=environment,
        )
        self._parameters[id(pool)] = parameters
        return pool

    def end_pool(self, pool: Pool) -> None:
        """Keep the server for the next search."""
        idle_processes().park(self._parameters.pop(id(pool)), pool)


def child_settings(options: TuneOptions) -> dict[str, str]:
    """What the environment of children has besides this process's own."""
    return {"TILESMITH_CACHE_DIR": str(options.settings.cache_dir)}


def find_preloads(needs: TuningNeeds) -> tuple[str, ...]:
    """What processes that build import, or call, before their jobs."""
    return (*((POSTPONE_TORCH,) if needs.builds_without_torch else ()), *needs.preloads)
