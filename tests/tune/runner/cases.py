"""Small kernels as the runner sees them: a saved workload and programs to run on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import tilesmith
import tilesmith.language as hl
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.lab.workload.capture import capture
from tilesmith.schedule.config import Config
from tilesmith.tune.jobs import PrepareJob, Program
from tilesmith.tune.workspace import CandidateBinder


@tilesmith.kernel()
def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = y.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc.to(x.dtype)
    return out


@tilesmith.kernel()
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.softmax(x[tile, :], dim=1)
    return out


@tilesmith.kernel()
def add_in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        x[tile] += y[tile]
    return x


@tilesmith.kernel()
def histogram(x: torch.Tensor, num_bins: int) -> torch.Tensor:
    out = torch.zeros([num_bins], dtype=torch.int32, device=x.device)
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(out, [x[tile]], torch.ones_like(x[tile], dtype=torch.int32))
    return out


@tilesmith.kernel()
def float_sum(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([1], dtype=torch.float32, device=x.device)
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(out, [0], torch.sum(x[tile]))
    return out


@dataclass(frozen=True)
class Case:
    """A kernel bound to arguments, with its workload saved."""

    bound: BoundKernel
    candidates: CandidateBinder
    workload: Path
    expected: torch.Tensor
    result: str
    """Parameter that holds the result."""
    default: Config

    def program(self, key: str = "first", config: Config | None = None) -> Program:
        """A candidate; of the default config unless another is given."""
        config = config or self.default
        artifact = self.bound.to_artifact(config)
        return Program(key, artifact, self.candidates.bind(config, artifact))

    def prepare_job(self, **changes: Any) -> PrepareJob:
        """The first job of a runner, with the fp64 reference."""
        reference = self.candidates.reference(self.default)
        job = PrepareJob(self.workload, "cpu", reference, num_threads=1)
        return replace(job, **changes)


def make_case(
    kernel: Any, args: tuple[Any, ...], expected: torch.Tensor, folder: Path, result: str = "out"
) -> Case:
    """Capture a call of a kernel on the CPU."""
    bound = kernel.bind(args)
    config = bound.default_config()
    captured = capture(bound, args, config)
    candidates = CandidateBinder(bound, args, captured, folder)
    return Case(bound, candidates, captured.save(folder), expected, result, config)


def matmul_case(folder: Path) -> Case:
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(size, generator=generator) for size in ((65, 65), (65, 65)))
    return make_case(matmul, (x, y), x.double() @ y.double(), folder)


def softmax_case(folder: Path) -> Case:
    x = torch.randn(37, 130, generator=torch.Generator().manual_seed(2))
    return make_case(softmax, (x,), torch.softmax(x.double(), 1), folder)


def in_place_case(folder: Path) -> Case:
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.randn(1000, generator=generator) for _ in range(2))
    return make_case(add_in_place, (x, y), (x + y).double(), folder, "x")


def histogram_case(folder: Path) -> Case:
    x = torch.randint(0, 7, [1000], generator=torch.Generator().manual_seed(4))
    return make_case(histogram, (x, 7), torch.bincount(x, minlength=7), folder)


def float_sum_case(folder: Path) -> Case:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(5))
    return make_case(float_sum, (x,), x.double().sum()[None], folder)


CASES: dict[str, Callable[[Path], Case]] = {
    "matmul": matmul_case,
    "softmax": softmax_case,
    "in place": in_place_case,
    "histogram": histogram_case,
    "float sum": float_sum_case,
}


def with_llvm(program: Program, old: str, new: str) -> Program:
    """The program with its machine code changed; the text must be there."""
    assert old in program.artifact.llvm
    artifact = replace(program.artifact, llvm=program.artifact.llvm.replace(old, new))
    return replace(program, artifact=artifact)
