"""Subscripts of host tensors as IR: what each index element becomes, and how elements align."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilesmith.language as hl
from tests.frontend.traced import lines_of
from tilesmith import exc


def access_of(read: Callable[..., Any], *shape: int, **options: Any) -> str:
    """The type of what a subscript in a loop over the first axis loads."""

    def kernel(x, read):
        for t in hl.tile(x.size(0)):
            x[t, 0] = read(x, t).sum()

    lines = lines_of(kernel, torch.zeros(shape), read, **options)
    (load,) = [line for line in lines if "= load(" in line]
    return load.rpartition(" : ")[2]


@pytest.mark.parametrize(
    ("read", "loaded"),
    [
        (lambda x, t: x[t, :], "f32[t, 6]"),
        (lambda x, t: x[t, 1:5:2], "f32[t, 2]"),
        (lambda x, t: x[t, -2:], "f32[t, 2]"),
        (lambda x, t: x[t, -1], "f32[t]"),
        (lambda x, t: x[t], "f32[t, 6]"),
        (lambda x, t: x[..., 2], "f32[8]"),
        (lambda x, t: x[t, None, 0], "f32[t, 1]"),
        (lambda x, t: x[t.begin, :], "f32[6]"),
        (lambda x, t: x[t.index, hl.arange(3)], "f32[t, 3]"),
        (lambda x, t: x[t.index[:, None], hl.arange(4)[None, :]], "f32[t, 4]"),
        (lambda x, t: x[t.begin : t.begin + 4, 0], "f32[4]"),
        (lambda x, t: x[t.begin : t.begin + t.block_size, 0], "f32[t]"),
    ],
)
def test_shapes_of_loads(read: Callable[..., Any], loaded: str) -> None:
    assert access_of(read, 8, 6) == loaded


def test_a_tile_over_an_axis_of_one_reads_that_one_again_and_again() -> None:
    def kernel(x, out):
        for t in hl.tile(out.size(0)):
            out[t] = x[t]

    lines = lines_of(kernel, torch.zeros(1), torch.zeros(8))
    assert "%2 = full() {value=0} : i32[t]" in lines
    assert "%3 = load(%x, none, [%2]) : f32[t]" in lines


def test_negative_indices_count_from_a_runtime_size() -> None:
    assert access_of(lambda x, t: x[t, -1], 8, 6, static_shapes=False) == "f32[t]"


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (lambda x, t: x[t, 6], exc.IndexOutOfRange),
        (lambda x, t: x[t, -7], exc.IndexOutOfRange),
        (lambda x, t: x[t, 0, 0], exc.RankMismatch),
        (lambda x, t: x[..., t, ...], exc.TypeInferenceError),
        (lambda x, t: x[t, 1.5], exc.InvalidIndexingType),
        (lambda x, t: x[t, True], exc.InvalidIndexingType),
        (lambda x, t: x[x[t, 0] > 0, 0], exc.DataDependentOutputShapeNotSupported),
        (lambda x, t: x[t, ::-1], exc.InvalidSliceStep),
        (lambda x, t: x[0 : t.begin, 0], exc.TensorSliceBound),
        (lambda x, t: x[(t, t), 0], exc.OverpackedTile),
    ],
)
def test_what_cannot_be_an_index(read: Callable[..., Any], error: type[exc.BaseError]) -> None:
    with pytest.raises(error):
        access_of(read, 8, 6)
