"""Input generators: repeatable, of the promised form, in the promised layout."""

from __future__ import annotations

import pytest
import torch

from tests.layouts import misaligned, strided, transposed
from tilesmith.numerics.inputs import random_tensor

FLOATS = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(left.double().nan_to_num(nan=123.0), right.double().nan_to_num(nan=123.0))


@pytest.mark.parametrize("dtype", FLOATS)
def test_values_depend_on_the_seed_alone(dtype):
    torch.manual_seed(0)
    first = random_tensor((8, 16), dtype, seed=3)
    torch.manual_seed(1)
    assert same(first, random_tensor((8, 16), dtype, seed=3))
    assert not same(first, random_tensor((8, 16), dtype, seed=4))
    assert first.dtype == dtype
    assert first.shape == (8, 16)


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0), (2, 1), (2, 3, 5)])
def test_small_and_empty_shapes_are_made(shape):
    assert random_tensor(shape, torch.float32).shape == shape


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.uint8, torch.bool])
def test_integers_are_small_and_varied(dtype):
    values = random_tensor((200,), dtype)
    assert values.dtype == dtype
    assert len(values.unique()) > 1
    assert int(values.to(torch.int64).abs().max()) <= 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("shape", [(0,), (7,), (3, 5), (2, 3, 4)])
def test_layouts_keep_the_values(dtype, shape):
    values = random_tensor(shape, dtype)
    assert torch.equal(strided(values), values)
    assert torch.equal(misaligned(values), values)
    if len(shape) >= 2:
        assert torch.equal(transposed(values), values)


def test_layouts_are_what_they_say():
    values = random_tensor((4, 6), torch.float32)
    assert strided(values, 3).stride() == (3 * 18, 3)
    assert transposed(values).stride() == (1, 4)
    assert misaligned(values).storage_offset() == 1
    assert misaligned(values).is_contiguous()


def test_the_gaps_of_strided_tensors_are_poisoned():
    view = strided(random_tensor((4,), torch.float32))
    whole = view.as_strided((8,), (1,))
    assert whole[1::2].isnan().all()
