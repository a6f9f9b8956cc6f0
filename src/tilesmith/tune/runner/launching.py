"""From a candidate and its tensors to a callable without arguments that launches it.

The launchers are those of ordinary calls, so what is timed is what a user gets: the same code path,
allocator, cooperative grids. Only where the values come from differs: host code is not run, they
are looked up by parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tilesmith.artifacts import Artifact
from tilesmith.runtime.launch_tensors import make_launch_tensor
from tilesmith.runtime.launchers.cpu import NativeOptions, native_launcher
from tilesmith.runtime.launchers.gpu_call import GpuOptions
from tilesmith.runtime.launchers.triton import TritonLauncher
from tilesmith.store.outcome import UNKNOWN_RESOURCES, Resources


@dataclass(frozen=True)
class Place:
    """Where kernels run, and where their code is kept."""

    device: torch.device
    cache_dir: Path
    num_threads: int = 0
    """0: as many as torch uses."""

    @property
    def is_gpu(self) -> bool:
        """Whether launches return before they are done."""
        return self.device.type != "cpu"

    def synchronize(self) -> None:
        """Wait for what was launched; raises what went wrong on the device."""
        if self.is_gpu:
            torch.cuda.synchronize(self.device)


@dataclass(frozen=True)
class Launch:
    """One candidate, ready to run on the tensors of a workload."""

    run: Callable[[], None]
    resources: Callable[[], Resources]
    """What it takes of the device; known when it has run."""


def make_launch(artifact: Artifact, values: Mapping[str, Any], place: Place) -> Launch:
    """A launch of the artifact; ``values`` gives a tensor or number to each parameter."""
    slots = [f"value_{position}" for position in range(len(artifact.parameters))]
    ordered = tuple(
        make_launch_tensor(parameter, place.device)
        if parameter.is_made_at_launch
        else values[parameter.name]
        for parameter in artifact.parameters
    )
    renamed = replace(
        artifact,
        parameters=tuple(
            replace(parameter, source=slot) for parameter, slot in zip(artifact.parameters, slots)
        ),
    )
    counters = [x for x, p in zip(ordered, artifact.parameters) if p.is_zeroed]

    def prepared(launch: Callable[..., Any]) -> Callable[[], None]:
        def run() -> None:
            for counter in counters:
                counter.zero_()
            launch(*ordered)

        return run

    if not artifact.target.is_gpu:
        options = NativeOptions(place.cache_dir, place.num_threads, frozenset(slots))
        native = native_launcher(renamed, slots, (), options)
        return Launch(prepared(native), lambda: UNKNOWN_RESOURCES)
    options = GpuOptions(place.device, place.cache_dir, frozenset(slots))
    launcher = TritonLauncher(renamed, slots, (), options)
    return Launch(prepared(launcher.launch), lambda: _resources(launcher))


def _resources(launcher: TritonLauncher) -> Resources:
    if not launcher.kernels:
        return UNKNOWN_RESOURCES
    kernel = launcher.kernels[0]
    return Resources(
        shared_bytes=getattr(kernel.metadata, "shared", None),
        registers=getattr(kernel, "n_regs", None),
        spills=getattr(kernel, "n_spills", None),
    )
