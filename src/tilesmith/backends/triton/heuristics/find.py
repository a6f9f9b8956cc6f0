"""The list of heuristics for GPU kernels, and which of them answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tilesmith.backends.triton.heuristics.candidates import (
    gpu_candidates,
    several_grids_candidates,
    with_numbering,
)
from tilesmith.backends.triton.heuristics.chained_matmul import (
    attention_gradient_seeds,
    attention_seeds,
    reduction_epilogue_seeds,
)
from tilesmith.backends.triton.heuristics.matmul import matmul_seeds
from tilesmith.backends.triton.heuristics.pointwise import pointwise_seeds
from tilesmith.backends.triton.heuristics.reduction import reduction_seeds
from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.backends.triton.heuristics.several_grids import (
    SeveralGridsSeed,
    several_grids_seeds,
)
from tilesmith.backends.triton.heuristics.split_rows import (
    exchange_seeds,
    panel_seeds,
    two_phase_seeds,
)
from tilesmith.schedule.rules import Seed, TargetedKernel

HEURISTICS: tuple[tuple[str, Callable[[TargetedKernel], Sequence[GpuSeed]]], ...] = (
    ("product whose programs exchange sums", exchange_seeds),
    ("product of a panel, then its rows", panel_seeds),
    ("matmul with reduction epilogue", reduction_epilogue_seeds),
    ("attention with more products", attention_gradient_seeds),
    ("attention", attention_seeds),
    ("matmul", matmul_seeds),
    ("reduction", reduction_seeds),
    ("pointwise", pointwise_seeds),
)
"""The first that answers gives the default; more specific ones come first."""


def find_heuristic(kernel: TargetedKernel) -> tuple[str, Sequence[Seed]]:
    """The name of the heuristic that answers, and its seeds; "" and nothing when none does."""
    if len(kernel.outline.grids) <= 1:
        return _first_answer(kernel)
    split = two_phase_seeds(kernel, _seeds_of_one)
    if split:
        return "product, then its rows", split
    return "each loop", several_grids_seeds(kernel, _seeds_of_one)


def _seeds_of_one(kernel: TargetedKernel) -> Sequence[GpuSeed]:
    return _first_answer(kernel)[1]


def _first_answer(kernel: TargetedKernel) -> tuple[str, Sequence[GpuSeed]]:
    for name, heuristic in HEURISTICS:
        seeds = heuristic(kernel)
        if seeds:
            return name, seeds
    return "", []


def find_candidates(kernel: TargetedKernel, first: Seed | None) -> Iterable[Seed]:
    """Tiles, warps and stages around what the facts suggest."""
    if isinstance(first, SeveralGridsSeed):
        return several_grids_candidates(first)
    return gpu_candidates(kernel, first if isinstance(first, GpuSeed) else GpuSeed({}))


def find_variants(kernel: TargetedKernel, seed: Seed) -> Iterable[Seed]:
    """A good tile with other orders of programs."""
    return with_numbering(kernel, seed) if isinstance(seed, GpuSeed) else ()
