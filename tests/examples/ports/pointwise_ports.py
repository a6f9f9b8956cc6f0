"""Sampling, boxes, optimisers and rounding as people port them, as data."""

from __future__ import annotations

import torch

from examples.ports import (
    adamw,
    compaction,
    grid_sample,
    nms,
    rotary_pairs,
    running_max,
    stochastic_rounding,
)
from tests.examples.case import Args, Size, blocks
from tests.examples.ports.port import Port
from tilesmith.numerics.inputs import random_tensor

# Images, channels, rows, columns; rows and columns of points.
POINTS: tuple[Size, ...] = (
    (1, 1, 1, 1, 1, 1),
    (1, 16, 4, 4, 4, 4),
    (2, 3, 5, 7, 1, 17),
    (2, 17, 13, 11, 5, 7),
)
BOXES: tuple[Size, ...] = ((1,), (15,), (16,), (17,), (53,))
PARAMETERS: tuple[Size, ...] = ((0,), (1,), (16,), (17, 1), (3, 5, 7))
LISTS: tuple[Size, ...] = ((1,), (15,), (16,), (65,), (300,))
HEADS: tuple[Size, ...] = ((1, 1, 1, 2), (2, 17, 3, 16), (1, 16, 5, 24))
PLANES: tuple[Size, ...] = ((1, 1), (16, 16), (15, 17), (13, 37))


def sampled(size: Size, dtype: torch.dtype, device: str) -> Args:
    n, c, h, w, rows, columns = size
    inputs = grid_sample.random_inputs((n, c, h, w), (rows, columns), dtype)
    return tuple(x.to(device) for x in inputs)


def boxes(size: Size, dtype: torch.dtype, device: str) -> Args:
    return nms.random_boxes(size[0])[0].to(device), 0.25


def overlaps(size: Size, dtype: torch.dtype, device: str) -> Args:
    return (nms.reference_overlaps(*boxes(size, dtype, device)),)


def optimised(size: Size, dtype: torch.dtype, device: str) -> Args:
    state = (x.to(device) for x in adamw.random_state(size, dtype))
    return *state, 7, 1e-2, (0.9, 0.999), 1e-8, 0.1


def repeating(size: Size, dtype: torch.dtype, device: str) -> Args:
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(0, 7, size, generator=generator).to(dtype)
    if size[1] > 4:
        values[0, 3] = float("nan")
        values[-1, :2] = float("-inf")
    return (values.to(device),)


def listed(size: Size, dtype: torch.dtype, device: str) -> Args:
    return tuple(x.to(device) for x in compaction.random_marks(size[0], dtype))


def heads(size: Size, dtype: torch.dtype, device: str) -> Args:
    batch, tokens, count, width = size
    inputs = rotary_pairs.random_inputs((batch, tokens, count, width), dtype)
    return tuple(x.to(device) for x in inputs)


def drawn(size: Size, dtype: torch.dtype, device: str) -> Args:
    return random_tensor(size, dtype, seed=0, device=device), 7


def unrounded(x: torch.Tensor, seed: int) -> torch.Tensor:
    """Within an ulp of it, the result of chance must lie; its chances have a test of their own."""
    return x.double()


FP32 = (torch.float32,)
# fmt: off
POINTWISE_PORTS: tuple[Port, ...] = (
    # A position has fp32's rounding at up to the number of columns.
    Port("grid_sample", grid_sample.grid_sample, sampled, grid_sample.reference, blocks(16, 16),
         POINTS, lambda size: 4 * size[3], typical=(2, 64, 64, 64, 64, 64)),
    Port("nms_find_overlaps", nms.find_overlaps, boxes, nms.reference_overlaps, blocks(16, 16),
         BOXES, dtypes=FP32, typical=(1000,)),
    Port("nms_keep_first", nms.keep_first, overlaps, nms.reference_keep, blocks(16), BOXES,
         dtypes=FP32, typical=(1000,)),
    # The change may cancel the parameter.
    Port("adamw", adamw.adamw, optimised, adamw.reference, blocks(16), PARAMETERS, lambda size: 2,
         typical=(1024, 1024)),
    Port("stochastic_rounding", stochastic_rounding.round_stochastically, drawn, unrounded,
         blocks(16), PARAMETERS, rounded_to=(torch.bfloat16,), dtypes=FP32, noticeable=0.1,
         typical=(1024, 1024)),
    Port("compaction", compaction.compact, listed, compaction.reference, blocks(16, 4), LISTS,
         typical=(1 << 16,)),
    # The two products may cancel.
    Port("rotary_pairs", rotary_pairs.rotate_pairs, heads, rotary_pairs.reference, blocks(8, 2),
         HEADS, lambda size: 2, typical=(2, 2048, 32, 128)),
    Port("running_max", running_max.running_max, repeating, running_max.reference, blocks(16, 16),
         PLANES, typical=(256, 4096)),
)
# fmt: on
