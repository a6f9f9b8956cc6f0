"""From a Python function to a callable machine function: milliseconds by stage, as JSON lines.

Run by benchmarks.cpu twice with one fresh cache folder: the first process makes the machine code,
the second finds it on the disk. What a process pays once is measured with a kernel of its own.
"""

from __future__ import annotations

import importlib
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.checking import describe
from benchmarks.cpu_workloads import WORKLOADS, CpuWorkload, Tensors, tensors
from examples.exp import exp_fwd
from tilesmith.settings import Settings

FIRST = "first in a process"


@dataclass(frozen=True)
class Stages:
    """Milliseconds of each stage for one kernel."""

    kernel: str
    trace_ms: float | None = None
    """Source, trace and the passes that do not depend on a config."""
    emit_ms: float | None = None
    """Schedule, its passes and LLVM IR text."""
    machine_ms: float | None = None
    """LLVM IR to object code, or the object code from the disk."""
    load_ms: float | None = None
    """Linking it into the process."""
    llvm_lines: int = 0
    problem: str = ""


def fresh(kernel: Any) -> Any:
    """The same kernel without anything traced or compiled."""
    # Looked up late: importing tilesmith is no part of what is measured.
    tilesmith = importlib.import_module("tilesmith")
    return tilesmith.kernel(kernel.fn, settings=kernel.settings)


def compile_in_stages(name: str, kernel: Any, inputs: Tensors) -> Stages:
    """Bind, emit, make machine code, load."""
    loader = importlib.import_module("tilesmith.runtime.native.loader")
    clock = [time.perf_counter()]
    bound = fresh(kernel).bind(inputs)
    clock.append(time.perf_counter())
    artifact = bound.to_artifact()
    clock.append(time.perf_counter())
    if not getattr(artifact, "llvm", ""):
        return Stages(name, problem="not compiled to machine code")
    content = loader.compile_artifact(artifact, Path(Settings().cache_dir))
    clock.append(time.perf_counter())
    loader.process_loader().load(content, artifact.name)
    clock.append(time.perf_counter())
    trace, emit, machine, load = ((b - a) * 1e3 for a, b in pairwise(clock))
    return Stages(name, trace, emit, machine, load, artifact.llvm.count("\n"))


def guarded(name: str, kernel: Any, inputs: Tensors) -> Stages:
    """The stages, or why there are none."""
    try:
        return compile_in_stages(name, kernel, inputs)
    except Exception as error:
        return Stages(name, problem=describe(error))


def distinct_kernels() -> Iterator[CpuWorkload]:
    """One workload per kernel and type of arguments; sizes are the real ones."""
    yield from {(item.module, item.dtype): item for item in WORKLOADS}.values()


def main() -> None:
    """One line per kernel."""
    warnings.simplefilter("ignore")
    first = guarded(FIRST, exp_fwd, tensors((1000,))(WORKLOADS[0].dtype))
    print(json.dumps(asdict(first)), flush=True)
    for workload in distinct_kernels():
        stages = guarded(workload.name, workload.load_kernel(), workload.inputs())
        print(json.dumps(asdict(stages)), flush=True)


if __name__ == "__main__":
    main()
