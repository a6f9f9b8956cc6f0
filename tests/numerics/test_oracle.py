"""References: fp64 truth, native results, masks; arguments stay as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.layouts import strided
from tests.numerics.judged_kernels import (
    evens,
    histogram,
    increment,
    matmul,
    reference_of,
    row_sums,
    weighted,
)
from tilesmith.numerics.inputs import random_tensor
from tilesmith.numerics.oracle import NoReferenceError

BF16 = torch.bfloat16


@pytest.mark.parametrize("blocks", [[16, 16, 16], [64, 32, 8], [1, 128, 64]])
def test_the_truth_of_a_product_is_fp64(blocks: list[int]) -> None:
    x, y = random_tensor((37, 53), BF16), random_tensor((53, 29), BF16, seed=1)
    reference, _ = reference_of(matmul, x, y, torch.zeros(37, 29, dtype=BF16), blocks=blocks)
    out = reference.tensors["out"]
    torch.testing.assert_close(out.truth, x.double() @ y.double(), rtol=1e-13, atol=1e-13)
    assert out.native.dtype == BF16
    assert (out.native.double() - out.truth).abs().max() < 0.1
    assert out.written.all()
    assert reference.is_complete
    assert str(reference) == "fp64 reference"
    assert reference.sum_length == 53


def test_arguments_are_left_alone() -> None:
    x = torch.arange(50.0)
    reference, _ = reference_of(increment, x, blocks=[16])
    assert torch.equal(x, torch.arange(50.0))
    assert torch.equal(reference.tensors["x"].truth, torch.arange(1.0, 51.0).double())
    assert torch.equal(reference.tensors["x"].native, torch.arange(1.0, 51.0))


def test_intermediates_are_not_rounded_in_the_truth() -> None:
    x, v = random_tensor((20, 64), BF16), random_tensor((64, 16), BF16, seed=1)
    reference, _ = reference_of(weighted, x, v, torch.zeros(20, 16, dtype=BF16), blocks=[16])
    p = torch.exp(x.double())
    expected = p @ v.double() / p.sum(-1, keepdim=True)
    torch.testing.assert_close(reference.tensors["out"].truth, expected, rtol=1e-13, atol=1e-13)


def test_strided_outputs_and_neighbours_in_their_memory() -> None:
    x, memory = random_tensor((30, 20), torch.float32), torch.zeros(60)
    reference, _ = reference_of(row_sums, strided(x), memory[::2], blocks=[16])
    out = reference.tensors["out"]
    torch.testing.assert_close(out.truth, x.double().sum(1), rtol=1e-14, atol=1e-14)
    assert out.written.shape == (30,)


def test_only_what_is_written_is_known() -> None:
    x, out = torch.randn(50), torch.full((100,), 7.0)
    reference, _ = reference_of(evens, x, out, blocks=[16])
    written = reference.tensors["out"].written
    assert torch.equal(written.nonzero().flatten(), torch.arange(0, 100, 2))
    assert (reference.tensors["out"].native[1::2] == 7).all()


def test_some_programs_are_enough() -> None:
    x = random_tensor((1000, 8), torch.float32)
    reference, _ = reference_of(row_sums, x, torch.zeros(1000), blocks=[8], max_programs=7, seed=5)
    out = reference.tensors["out"]
    assert str(reference) == "fp64 reference, 7 of 125 programs"
    assert int(out.written.sum()) == 56
    assert out.written[:8].all()
    assert out.written[-8:].all()
    expected = x.double().sum(1)
    torch.testing.assert_close(
        out.truth[out.written], expected[out.written], rtol=1e-13, atol=1e-13
    )


def test_atomics_need_all_programs() -> None:
    x = random_tensor((1000,), torch.float32)
    reference, _ = reference_of(histogram, x, torch.zeros(10), blocks=[16], max_programs=2)
    assert reference.is_complete
    expected = x.double().view(100, 10).sum(0)
    torch.testing.assert_close(reference.tensors["out"].truth, expected, rtol=1e-13, atol=1e-13)


def test_what_takes_too_long_is_given_up() -> None:
    x = random_tensor((10_000,), torch.float32)
    with pytest.raises(NoReferenceError, match="gives up: it takes longer than"):
        reference_of(histogram, x, torch.zeros(10), blocks=[1], time_limit_s=0.05)


def test_arguments_that_share_memory_still_do() -> None:
    x = torch.arange(64.0)
    reference, _ = reference_of(evens, x[:32], x, blocks=[64])
    expected = torch.arange(64.0)
    expected[::2] = torch.arange(32.0) * 3
    assert torch.equal(reference.tensors["out"].native, expected)
    assert torch.equal(reference.tensors["out"].truth, expected.double())


def test_integer_results_are_exact_in_both() -> None:
    x = torch.randint(-1000, 1000, (50,))
    reference, _ = reference_of(evens, x, torch.zeros(100, dtype=torch.int64), blocks=[16])
    out = reference.tensors["out"]
    assert torch.equal(out.truth, out.native)
    assert out.truth.dtype == torch.int64


def test_kernels_the_interpreter_cannot_run_say_why() -> None:
    x = torch.randn(50)
    with pytest.raises(NoReferenceError, match="cannot run it: index 96 is out of bounds"):
        reference_of(evens, x, torch.zeros(60), blocks=[16])


@pytest.mark.parametrize("shape", [(0, 5), (1, 1)])
def test_small_and_empty_tensors(shape: tuple[int, ...]) -> None:
    x: Any = torch.ones(shape)
    reference, _ = reference_of(row_sums, x, torch.zeros(shape[0]), blocks=[16])
    assert reference.tensors["out"].truth.tolist() == [1.0] * shape[0]


def test_arguments_in_fp64_stay_as_they_are():
    x = torch.arange(5, dtype=torch.float64)
    reference, _ = reference_of(increment, x, blocks=[2])
    assert x.tolist() == [0, 1, 2, 3, 4]
    assert reference.tensors["x"].truth.tolist() == [1, 2, 3, 4, 5]
    assert reference.tensors["x"].native.tolist() == [1, 2, 3, 4, 5]
