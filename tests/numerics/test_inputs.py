"""Input generators: repeatable, of the promised form, in the promised layout."""

from __future__ import annotations

import math

import pytest
import torch

from tilesmith.numerics.inputs import (
    adversarial_tensor,
    boundary_extents,
    cancelling_tensor,
    extreme_values,
    misaligned,
    nan_bearing_tensor,
    random_tensor,
    strided,
    transposed,
)

FLOATS = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]
GENERATORS = [random_tensor, adversarial_tensor, cancelling_tensor, nan_bearing_tensor]


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(left.double().nan_to_num(nan=123.0), right.double().nan_to_num(nan=123.0))


@pytest.mark.parametrize("generate", GENERATORS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_values_depend_on_the_seed_alone(generate, dtype):
    torch.manual_seed(0)
    first = generate((8, 16), dtype, seed=3)
    torch.manual_seed(1)
    assert same(first, generate((8, 16), dtype, seed=3))
    assert not same(first, generate((8, 16), dtype, seed=4))
    assert first.dtype == dtype
    assert first.shape == (8, 16)


@pytest.mark.parametrize("generate", GENERATORS)
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0), (2, 1), (2, 3, 5)])
def test_small_and_empty_shapes_are_made(generate, shape):
    assert generate(shape, torch.float32).shape == shape


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.uint8, torch.bool])
def test_integers_are_small_and_varied(dtype):
    values = random_tensor((200,), dtype)
    assert values.dtype == dtype
    assert len(values.unique()) > 1
    assert int(values.to(torch.int64).abs().max()) <= 8


@pytest.mark.parametrize("dtype", FLOATS)
def test_adversarial_values_span_binades_and_include_subnormals_and_both_zeros(dtype):
    values = adversarial_tensor((4096,), dtype).double()
    assert bool(torch.isfinite(values).all())
    nonzero = values[values != 0].abs()
    assert float(nonzero.min()) < torch.finfo(dtype).smallest_normal
    spanned = math.log2(float(nonzero.max()) / float(nonzero.min()))
    assert spanned > math.log2(torch.finfo(dtype).max) / 2
    zeros = torch.copysign(torch.ones(()), values[values == 0])
    assert set(zeros.tolist()) == {1.0, -1.0}
    assert bool(torch.isfinite((values * values).to(dtype).double()).all())


@pytest.mark.parametrize("dtype", FLOATS)
def test_extreme_values_are_finite_and_reach_the_ends(dtype):
    values = extreme_values(dtype).double()
    assert bool(torch.isfinite(values).all())
    assert float(values.max()) == torch.finfo(dtype).max
    assert float(values.min()) == torch.finfo(dtype).min


def test_cancelling_rows_sum_to_far_less_than_their_terms():
    values = cancelling_tensor((50, 256), torch.float32).double()
    ratio = values.sum(-1).abs() / values.abs().sum(-1)
    assert float(ratio.median()) < 0.05


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values_are_present_but_few(dtype):
    values = nan_bearing_tensor((64, 64), dtype).double()
    assert bool(values.isnan().any())
    assert bool(values.isinf().any()) == (dtype != torch.float8_e4m3fn)
    assert int(values.isfinite().sum()) > 0.9 * values.numel()


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


@pytest.mark.parametrize("block", [1, 16, 64])
def test_boundary_extents_surround_the_block(block):
    extents = boundary_extents(block)
    assert {0, 1, block - 1, block, block + 1} <= set(extents)
    largest = max(extents)
    assert all(largest % divisor for divisor in range(2, largest))


def test_special_inputs_of_integers_are_refused():
    with pytest.raises(TypeError, match="float type"):
        nan_bearing_tensor((2,), torch.int32)
