# type: ignore
"""Tensors that are written must have memory of their own for each element."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc
from tilesmith.ir.types import MAX_COUNTED, find_overlap, may_overlap

SHAPES = pytest.mark.parametrize("static_shapes", [True, False])
BACKENDS = pytest.mark.parametrize("backend", ["auto", "reference"])


def increment(x):
    for tile in hl.tile(x.shape):
        x[tile] = x[tile] + 1


def add_atomically(x, y):
    for tile in hl.tile(y.shape):
        hl.atomic_add(x, tile, y[tile])


def to_expanded(x):
    out = torch.zeros([1, 3]).expand(x.size(0), 3)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :]
    return out


OVERLAPPING = {
    "expanded": lambda: torch.zeros(1, 3).expand(4, 3),
    "windows": lambda: torch.zeros(20).as_strided((4, 4), (2, 1)),
    "equal strides": lambda: torch.zeros(20).as_strided((4, 4), (2, 2)),
    "large windows": lambda: torch.zeros(70000).as_strided((300, 300), (200, 1)),
}
APART = {
    "contiguous": lambda: torch.zeros(4, 5),
    "transposed": lambda: torch.zeros(4, 5).t(),
    "part": lambda: torch.zeros(8, 8)[::2, :5],
    "interleaved": lambda: torch.zeros(20).as_strided((2, 3), (3, 2)),
    "one row expanded": lambda: torch.zeros(1, 3).expand(1, 3),
    "no rows": lambda: torch.zeros(1, 3).expand(0, 3),
}


@SHAPES
@BACKENDS
def test_overlapping_elements_are_refused(static_shapes, backend) -> None:
    kernel = helion.kernel(increment, static_shapes=static_shapes, backend=backend)
    for make in APART.values():
        tensor = make()
        kernel(tensor)
        assert torch.equal(tensor, torch.ones(tensor.shape))
    for make in (*OVERLAPPING.values(), *OVERLAPPING.values()):
        tensor = make()
        with pytest.raises(exc.OverlappingElements, match="refers to a single memory location"):
            kernel(tensor)
        assert not tensor.any()
    tensor = torch.zeros(4, 5)
    kernel(tensor)
    assert torch.equal(tensor, torch.ones(4, 5))


@SHAPES
def test_atomics_and_tensors_of_host_code_too(static_shapes) -> None:
    atomic = helion.kernel(add_atomically, static_shapes=static_shapes)
    with pytest.raises(RuntimeError, match="`x`, which is written"):
        atomic(torch.zeros(1).expand(4), torch.ones(4))
    made = helion.kernel(to_expanded, static_shapes=static_shapes)
    with pytest.raises(exc.OverlappingElements, match="`out`"):
        made.bind((torch.ones(4, 3),))


@SHAPES
def test_what_is_only_read_may_overlap(static_shapes) -> None:
    kernel = helion.kernel(add_atomically, static_shapes=static_shapes)
    x = torch.zeros(4)
    kernel(x, torch.ones(1).expand(4))
    assert torch.equal(x, torch.ones(4))


@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (2, 2, 2), (1, 4)])
def test_overlap_is_found_exactly(shape) -> None:
    for steps in range(5 ** len(shape)):
        strides = tuple(steps // 5**axis % 5 for axis in range(len(shape)))
        offsets = [0]
        for size, stride in zip(shape, strides):
            offsets = [o + i * stride for o in offsets for i in range(size)]
        is_shared = len(set(offsets)) < len(offsets)
        assert find_overlap(shape, strides) == is_shared, strides
        assert may_overlap(shape, strides) or not is_shared


def test_of_large_tensors_a_part_is_looked_at() -> None:
    assert find_overlap((MAX_COUNTED, MAX_COUNTED), (1, 1))
    assert not find_overlap((MAX_COUNTED, 2), (2, 1))
