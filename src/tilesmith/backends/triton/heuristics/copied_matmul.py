"""Products of 16-bit types whose operands and results go through the copy engine.

Programs walk over their tiles in one fused loop: operands of the next tile arrive, and the last
tile leaves in parts, while products go on. bf16 on an H200, speed relative to the vendor library,
by pointers / as here: 4096^3 0.96 / 1.00; 8192^3 1.00 / 1.03; 4096x512x4096 0.87 / 1.02;
131072x512x2048 0.77 / 0.96; 4096x4096x11008 1.00 / 1.03; 3072^3 0.76 / 0.87; in a single wave
512x4096x4096 0.94 / 0.99; 1024^3 0.98 / 1.01.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tilesmith.backends.triton.heuristics.seed import GpuSeed, copied, in_one_loop
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.collect import MatmulFact
from tilesmith.schedule.rules import TargetedKernel

LEAST_K = 256
LEAST_WORK = 7 << 30
"""Multiply-adds: 20 us or so. Shorter kernels would wait for the host to describe tensors."""
LEAST_AREA = 64 * 128


@dataclass(frozen=True)
class _Pipeline:
    """What was measured best for tiles of one area."""

    block_k: int
    num_stages: int
    num_warps: int
    parts: int | None
    """In how many parts a tile is stored."""


_LARGE = _Pipeline(64, 4, 8, 2)
_MEDIUM, _MEDIUM_ALONE = _Pipeline(64, 5, 8, 2), _Pipeline(64, 5, 4, None)
_SMALL, _SMALL_ALONE = _Pipeline(128, 4, 4, 2), _Pipeline(128, 4, 4, None)


def is_long(fact: MatmulFact) -> bool:
    """Whether a product takes long enough for this form."""
    return prod(axis.extent_or(4096) for axis in fact.axes) >= LEAST_WORK


def copied_seeds(kernel: TargetedKernel, seed: GpuSeed, num_tiles: int) -> list[GpuSeed]:
    """The tile of a seed in this form, if the kernel is such a product; else nothing."""
    facts = kernel.facts
    if len(facts.matmuls) != 1 or not _is_copyable(kernel, facts.matmuls[0]):
        return []
    (fact,) = facts.matmuls
    assert fact.m.block is not None
    assert fact.n.block is not None
    assert fact.k.block is not None
    area = seed.blocks[fact.m.block] * seed.blocks[fact.n.block]
    if area < LEAST_AREA:
        return []
    # A tile as large as it can be leaves in parts even where it is a program's only one.
    is_fused = num_tiles > kernel.target.num_sms or area >= 128 * 256
    pipeline = _pipeline(area, is_fused=is_fused)
    blocks = {**seed.blocks, fact.k.block: max(fact.min_k, pipeline.block_k)}
    through = replace(
        seed,
        blocks=blocks,
        num_warps=pipeline.num_warps,
        num_stages=pipeline.num_stages,
        l2_grouping=8 if is_fused else seed.l2_grouping,
        options={**seed.options, **_options(kernel, pipeline, is_fused=is_fused)},
    )
    return [through, replace(through, num_stages=through.num_stages - 1)]


def _pipeline(area: int, *, is_fused: bool) -> _Pipeline:
    if area >= 128 * 256:
        return _LARGE
    if area >= 128 * 128:
        return _MEDIUM if is_fused else _MEDIUM_ALONE
    return _SMALL if is_fused else _SMALL_ALONE


def _options(kernel: TargetedKernel, pipeline: _Pipeline, *, is_fused: bool) -> dict[str, Any]:
    options: dict[str, Any] = copied(
        kernel, lambda fact: fact.kind == "store" or bool(fact.purpose.sides)
    )
    if pipeline.parts:
        options["epilogue_subtile"] = pipeline.parts
    return {**options, **in_one_loop(kernel)} if is_fused else options


def _is_copyable(kernel: TargetedKernel, fact: MatmulFact) -> bool:
    """Whether this is one loop over K in one grid, and the hardware can copy all its tiles."""
    if not kernel.target.has_tensor_descriptors or not fact.is_looped or fact.batch is not None:
        return False
    outline = kernel.outline
    is_plain = len(outline.grids) == 1 and len(outline.loops) == 1
    if not is_plain or any(axis.block is None for axis in fact.axes):
        return False
    accesses = kernel.facts.accesses
    operands = [item for item in accesses if item.kind == "load" and item.purpose.sides]
    moved = [*operands, *(item for item in accesses if item.kind != "load")]
    is_deep = fact.k.extent_or(0) >= LEAST_K
    return is_deep and len(operands) == 2 and all(map(_is_copied_well, moved))


def _is_copied_well(fact: AccessFact) -> bool:
    is_tile = fact.kind != "atomic" and len(fact.strides) == 2
    return is_tile and fact.fits_descriptor and fact.dtype.itemsize == 2
