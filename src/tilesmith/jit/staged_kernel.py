"""Kernels of several launches: host code runs on each call and calls one kernel per stage.

A stage is an ordinary kernel, found, compiled and launched as any other, with the values that host
code has at that moment. Nothing is known of it before host code comes to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Protocol

import torch

import tilesmith.exc as errors
from tilesmith.frontend.source.stages import StagedSource
from tilesmith.frontend.trace import same_random_numbers
from tilesmith.frontend.tracing.host_run import HostWatch, copy_tensors
from tilesmith.frontend.tracing.tracer import running_host
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.bound_stages import BoundStages, StageRecord
from tilesmith.jit.definition import KernelDefinition, StageDefinition
from tilesmith.jit.specialization_key import find_device
from tilesmith.jit.stage_configs import StageConfigs, StageSession, num_slots
from tilesmith.schedule.config import Config
from tilesmith.targets import Target


class StageKernel(Protocol):
    """What is needed of the kernel of a stage."""

    definition: KernelDefinition

    def bind(
        self, args: tuple[Any, ...] | list[Any], *, target: str | Target | None = None
    ) -> BoundKernel:
        """The kernel for these arguments."""
        ...

    def __call__(self, *args: Any) -> Any:
        """Run it."""
        ...


Launch = Callable[..., Any]


class StagedKernel:
    """Runs one kernel of several launches."""

    def __init__(
        self,
        definition: KernelDefinition,
        source: StagedSource,
        make_kernel: Callable[[KernelDefinition], StageKernel],
    ) -> None:
        self.definition = definition
        self.source = source
        self.kernels: Sequence[Any] = [
            make_kernel(StageDefinition(definition, s)) for s in source.stages
        ]
        self.configs = StageConfigs(source)
        self._host = source.host_function()
        self._launches = [self._launch_of(number) for number in range(len(self.kernels))]
        self._is_watched = False
        """Whether the torch calls of host code have been looked at, in a first run."""

    def call(self, args: tuple[Any, ...]) -> Any:
        """Run it."""
        if self._is_watched:
            return self.run(args, self._launches)
        self._is_watched = True
        with HostWatch(self.definition.warnings, self._host.__code__, self.device(args)):
            return self.run(args, self._launches)

    def run(
        self, args: tuple[Any, ...], launches: Sequence[Launch], config: Config | None = None
    ) -> Any:
        """Run host code; it calls ``launches`` where its device loops stand."""
        return self._run_in(self._session(args, config), args, launches)

    def _session(self, args: tuple[Any, ...], config: Config | None) -> StageSession:
        configs = self.definition.configs
        chosen = config or (configs[0] if configs else Config())
        return StageSession(self.configs.host_blocks(chosen), chosen, device=self.device(args))

    def _run_in(
        self, session: StageSession, args: tuple[Any, ...], launches: Sequence[Launch]
    ) -> Any:
        with running_host(session):
            return self._host(SimpleNamespace(device=session.device, stages=launches), *args)

    def run_on_copies(
        self, args: tuple[Any, ...], launches: Sequence[Launch], config: Config | None = None
    ) -> StageSession:
        """Run it so that the arguments and random numbers are as before."""
        session = self._session(args, config)
        with same_random_numbers():
            self._run_in(session, copy_tensors(args), launches)
        return session

    def device(self, args: tuple[Any, ...]) -> torch.device:
        """Where it runs."""
        device = find_device(args)
        if device is None:
            raise errors.NoTensorArgs(function=self.definition.name)
        return device

    def bind(
        self, args: tuple[Any, ...], target: str | Target | None, *, kernel: Any = None
    ) -> BoundStages:
        """Each stage for the values that host code has for it."""
        return BoundStages(self, args, target, kernel=kernel)

    def record(
        self, args: tuple[Any, ...], target: str | Target | None, config: Config | None = None
    ) -> tuple[StageRecord, StageSession]:
        """What host code comes to: it may go on with what a stage has computed, so stages run."""
        record = StageRecord(len(self.kernels))

        def launch_of(number: int) -> Launch:
            kernel = self.kernels[number]

            def launch(*values: Any) -> None:
                record.note(number, kernel.bind(values, target=target), values)
                self._launches[number](*values)

            return launch

        launches = [launch_of(number) for number in range(len(self.kernels))]
        return record, self.run_on_copies(args, launches, config)

    def refuse_several(self) -> errors.BaseError:
        """The error for tuning with several sets of arguments."""
        problem = "it has several launches; tune it for one set of arguments at a time"
        return errors.AutotuneError(function=self.definition.name, problem=problem)

    def _launch_of(self, number: int) -> Launch:
        kernel = self.kernels[number]
        given = self.definition.configs
        if not given:
            return kernel

        def launch(*values: Any) -> None:
            # How many block sizes a stage takes is known when it has been traced.
            if not kernel.definition.configs:
                self.configs.note(number, num_slots(kernel.bind(values).function))
                split = [self.configs.of_stage(config, number) for config in given]
                kernel.definition.configs.extend(split)
            kernel(*values)

        return launch
