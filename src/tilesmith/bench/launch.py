"""What a call costs the host: ours, Triton's ways to launch the same kernel, and torch.add.

Kernels of 2, 6 and 20 small tensors write into the first, so nothing is allocated. Each is called
with one shape, and with eight in turn. Batches are interleaved; a GPU is idle before each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tilesmith.artifacts import Artifact, load_module, write_module
from tilesmith.jit.kernel import Kernel
from tilesmith.measure.timer import Conditions, time_on_cpu
from tilesmith.runtime.calls.reader import process_readers
from tilesmith.runtime.native.loader import load_artifact

COUNTS = (2, 6, 20)
"""Numbers of arguments."""
SAME, IN_TURN = "same shape", "8 shapes in turn"
OURS, DIRECT, RAW = "tilesmith", "compiled kernel, run directly", "Triton, kernel[grid]"
ADD, ADD_OUT = "torch.add", "torch.add(out=)"
BATCH = 200
NUM_SHAPES = 8
WIDTH = 64

Call = Callable[..., Any]
Arguments = tuple[torch.Tensor, ...]

_MODULE = """
import tilesmith.language as hl
from tilesmith.jit.kernel import kernel
from tilesmith.schedule.config import Config

@kernel(config=Config(block_sizes=[32, 32]))
def total({names}):
    for tile in hl.tile(a0.size()):
        a0[tile] = {total}
    return a0
"""


@dataclass(frozen=True)
class LaunchCost:
    """Host time of one call."""

    implementation: str
    num_arguments: int
    shapes: str
    us: float
    """Median."""
    spread: float
    """Between the 20th and the 80th percentile, as a share of the median."""


def launch_costs(device: str = "", *, repeats: int = 30) -> list[LaunchCost]:
    """All rows; the device is a GPU if there is one."""
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    return [
        cost
        for count in COUNTS
        for shapes in (SAME, IN_TURN)
        for cost in _costs(count, shapes, place, repeats)
    ]


def print_launch_costs(console: Console, device: str = "") -> None:
    """Measure, and print a table."""
    costs = launch_costs(device)
    by_place = {(c.implementation, c.num_arguments, c.shapes): c for c in costs}
    table = Table(title="host microseconds of one call", box=SIMPLE_HEAD)
    for name in ("arguments", "shapes", "implementation", "us", "spread", "above run"):
        table.add_column(name, justify="left" if name in ("shapes", "implementation") else "right")
    for cost in costs:
        direct = by_place[(DIRECT, cost.num_arguments, cost.shapes)]
        above = f"{cost.us - direct.us:+.2f}" if cost.implementation == OURS else ""
        table.add_row(
            *(str(cost.num_arguments), cost.shapes, cost.implementation),
            *(f"{cost.us:.2f}", f"{cost.spread:.0%}", above),
        )
    console.print(table)
    console.print(f"Arguments are recognised by {how_arguments_are_read()}.")


def how_arguments_are_read() -> str:
    """What reads the tensors of a call in this process, for people to read."""
    obstacle = process_readers().obstacle
    return f"Python code ({obstacle})" if obstacle else "native code"


def make_kernel(count: int, directory: Path) -> Kernel:
    """A kernel of so many tensors that writes the sum of all others into the first."""
    names = [f"a{position}" for position in range(count)]
    path = directory / f"total_of_{count}.py"
    total = " + ".join(f"{name}[tile]" for name in names[1:])
    path.write_text(_MODULE.format(names=", ".join(names), total=total))
    return load_module(path).total


def make_arguments(count: int, shapes: str, device: torch.device) -> list[Arguments]:
    """Sets of arguments, to be used in turn."""
    rows = [WIDTH] if shapes == SAME else [8 * (number + 1) for number in range(NUM_SHAPES)]
    return [tuple(torch.ones(n, WIDTH, device=device) for _ in range(count)) for n in rows]


def _costs(count: int, shapes: str, device: torch.device, repeats: int) -> Iterator[LaunchCost]:
    sets = make_arguments(count, shapes, device)
    with TemporaryDirectory() as directory:
        calls = _calls(make_kernel(count, Path(directory)), sets, Path(directory))
        works = {name: _batch(calls[name], len(sets)) for name in calls}
        waits = dict.fromkeys(works, torch.cuda.synchronize) if device.type == "cuda" else {}
        conditions = Conditions(prepare=waits)
        timings = time_on_cpu(works, repeats=repeats, warmup=3, conditions=conditions)
    for name, timing in timings.items():
        us = timing.median_ms * 1e3 / BATCH
        yield LaunchCost(name, count, shapes, us, timing.summary.spread)


def _calls(
    kernel: Kernel, sets: Sequence[Arguments], directory: Path
) -> Mapping[str, Sequence[Callable[[], Any]]]:
    """By implementation a call for each set of arguments."""
    artifacts = [kernel.bind(arguments).to_artifact(kernel.configs[0]) for arguments in sets]
    others = [
        DIRECT_CALLS[artifact.backend](artifact, arguments, directory)
        for artifact, arguments in zip(artifacts, sets)
    ]
    return {
        OURS: [_fixed(kernel, *arguments) for arguments in sets],
        **{name: [calls[name] for calls in others] for name in others[0]},
        ADD: [_fixed(torch.add, *arguments[:2]) for arguments in sets],
        ADD_OUT: [_fixed(torch.add, *arguments[:2], out=arguments[0]) for arguments in sets],
    }


def _triton_calls(artifact: Artifact, arguments: Arguments, directory: Path) -> dict[str, Call]:
    """Launches without us: tensors as they are, everything else known beforehand."""
    function = getattr(load_module(write_module(artifact, directory)), artifact.name)
    grid = (*map(int, artifact.grid), 1, 1)[:3]
    compiled = function[grid](*arguments, **artifact.options)
    stream = torch.cuda.current_stream().cuda_stream
    fixed = (*grid, stream, compiled.function, compiled.packed_metadata, None, None, None)
    return {
        DIRECT: _fixed(compiled.run, *fixed, *arguments),
        RAW: lambda: function[grid](*arguments, **artifact.options),
    }


def _native_calls(artifact: Artifact, arguments: Arguments, directory: Path) -> dict[str, Call]:
    entry = load_artifact(artifact, directory)
    packed = struct.pack(f"={len(arguments)}q", *(tensor.data_ptr() for tensor in arguments))
    return {DIRECT: _fixed(entry, packed, torch.get_num_threads())}


def _fixed(call: Call, *arguments: Any, **options: Any) -> Callable[[], Any]:
    return lambda: call(*arguments, **options)


def _batch(calls: Sequence[Callable[[], Any]], count: int) -> Callable[[], None]:
    listed = list(calls) * (BATCH // count)

    def run() -> None:
        for call in listed:
            call()

    return run


DIRECT_CALLS = {"triton": _triton_calls, "cpu": _native_calls}
"""Launches without us, by the backend that made the artifact."""
