"""Judges accept what rounding explains and reject everything else, down to one small element."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.numerics.judged_kernels import (
    evens,
    histogram,
    matmul,
    quantized,
    reference_of,
    row_sums,
    softmax,
    weighted,
)
from tilesmith.numerics.float_standard import JudgeReport
from tilesmith.numerics.inputs import random_tensor
from tilesmith.numerics.judge import Judge
from tilesmith.numerics.oracle import Reference, ReferenceTensor
from tilesmith.numerics.tolerance import Tolerance

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
POISON = -1
"""As an integer: all bits set."""


def judge_product(
    dtype: torch.dtype, out: torch.dtype | None = None, k: int = 256
) -> tuple[Judge, torch.Tensor, torch.Tensor]:
    x, y = random_tensor((48, k), dtype), random_tensor((k, 40), dtype, seed=1)
    empty = torch.zeros(48, 40, dtype=out or dtype)
    reference, _ = reference_of(matmul, x, y, empty, blocks=[16, 16, 32])
    return Judge(reference), x, y


def split_product(x: torch.Tensor, y: torch.Tensor, out: torch.dtype, splits: int) -> torch.Tensor:
    """Partial products in fp32, added one after the other, from the last."""
    parts = zip(x.float().chunk(splits, 1), y.float().chunk(splits, 0))
    total = torch.zeros(x.shape[0], y.shape[1])
    for left, right in reversed(list(parts)):
        total += left @ right
    return total.to(out)


def corrupted(values: torch.Tensor, index: tuple[int, ...], value: Any) -> torch.Tensor:
    copy = values.clone()
    copy[index] = value
    return copy


def assert_wrong(report: JudgeReport, index: tuple[int, ...] | None = None) -> None:
    assert not report.is_right
    assert report.reason
    assert "\n" not in report.reason
    if index is not None:
        assert f"out[{', '.join(map(str, index))}]" in report.reason


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
@pytest.mark.parametrize("splits", [1, 4, 64, 256])
def test_sums_may_be_split_and_reordered(dtype: torch.dtype, splits: int) -> None:
    judge, x, y = judge_product(dtype)
    report = judge.check({"out": split_product(x, y, dtype, splits)})
    assert report.is_right, report.reason
    assert report.relative_norm < 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_one_wrong_element_is_found(dtype: torch.dtype) -> None:
    judge, x, y = judge_product(dtype)
    out = split_product(x, y, dtype, 4)
    factor = 1 + 16 * torch.finfo(dtype).eps if dtype is not F32 else 1.0001
    assert_wrong(judge.check({"out": corrupted(out, (3, 5), out[3, 5] * factor)}), (3, 5))
    assert_wrong(judge.check({"out": corrupted(out, (47, 39), math.nan)}), (47, 39))
    assert_wrong(judge.check({"out": corrupted(out, (47, 39), math.inf)}), (47, 39))


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_one_small_wrong_element_is_found(dtype: torch.dtype) -> None:
    judge, x, y = judge_product(dtype)
    out = split_product(x, y, dtype, 4)
    index = divmod(int(out.float().abs().argmin()), out.shape[1])
    rms = float(out.float().square().mean().sqrt())
    assert abs(float(out[index])) < rms / 100
    assert_wrong(judge.check({"out": corrupted(out, index, out[index] + rms / 100)}), index)


def test_a_wrong_element_of_a_small_row_is_found() -> None:
    x = random_tensor((64, 256), F32)
    x[10] *= 1e-6
    y = random_tensor((256, 64), F32, seed=1)
    reference, _ = reference_of(matmul, x, y, torch.zeros(64, 64), blocks=[16, 16, 32])
    out = split_product(x, y, F32, 8)
    judge = Judge(reference)
    assert judge.check({"out": out}).is_right
    assert_wrong(judge.check({"out": corrupted(out, (10, 3), out[10, 3] * 1.001)}), (10, 3))


def test_a_term_too_few_is_found() -> None:
    judge, x, y = judge_product(BF16)
    assert_wrong(judge.check({"out": split_product(x[:, :-1], y[:-1], BF16, 1)}))


def test_rows_off_by_one_are_found() -> None:
    judge, x, y = judge_product(BF16)
    assert_wrong(judge.check({"out": split_product(x, y, BF16, 1).roll(1, 0)}))


def test_elements_never_written_are_found() -> None:
    for dtype in (F32, F16, BF16):
        judge, x, y = judge_product(dtype)
        out = split_product(x, y, dtype, 1)
        bits = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
        out.view(bits)[-1, -1] = POISON
        assert_wrong(judge.check({"out": out}), (47, 39))


def test_elements_that_should_not_be_written_are_found() -> None:
    x, out = torch.randn(50), torch.full((100,), math.nan)
    reference, _ = reference_of(evens, x, out, blocks=[16])
    right = out.clone()
    right[::2] = x * 3
    judge = Judge(reference)
    assert judge.check({"out": right}).is_right
    report = judge.check({"out": corrupted(right, (37,), 0.0)})
    assert not report.is_right
    assert report.reason == "out[37] was written, and should not be"


def test_a_sample_says_nothing_of_the_rest() -> None:
    x = random_tensor((1000, 40), F32)
    reference, _ = reference_of(row_sums, x, torch.zeros(1000), blocks=[8], max_programs=4)
    known = reference.tensors["out"].written
    out = torch.where(known, x.sum(-1), 12345.0)
    judge = Judge(reference)
    assert judge.check({"out": out}).is_right
    last = int(known.nonzero()[-1])
    assert_wrong(judge.check({"out": corrupted(out, (last,), 12345.0)}), (last,))


def test_a_dropped_mask_is_found() -> None:
    x = random_tensor((30, 53), F32)
    reference, _ = reference_of(softmax, x, torch.zeros(30, 53), blocks=[16])
    judge = Judge(reference)
    padded = torch.zeros(30, 64)
    padded[:, :53] = x
    assert judge.check({"out": torch.softmax(x, -1)}).is_right
    assert_wrong(judge.check({"out": torch.softmax(padded, -1)[:, :53]}))


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_roundings_that_the_kernel_asks_for_are_accepted(dtype: torch.dtype) -> None:
    x, v = random_tensor((64, 256), dtype), random_tensor((256, 64), dtype, seed=1)
    reference, _ = reference_of(weighted, x, v, torch.zeros(64, 64, dtype=F32), blocks=[16])
    judge = Judge(reference)
    p = torch.exp(x.float())
    rounded = (p.to(dtype).float() @ v.float()) / p.sum(-1, keepdim=True)
    # The same with a running maximum taken out, as flash attention does.
    shift = x.float().amax(-1, keepdim=True)
    q = torch.exp(x.float() - shift)
    online = (q.to(dtype).float() @ v.float()) / q.sum(-1, keepdim=True)
    exact = (p.double() @ v.double() / p.double().sum(-1, keepdim=True)).float()
    for out in (rounded, online, exact):
        report = judge.check({"out": out})
        assert report.is_right, report.reason
    # Coarser ones are not.
    coarse = (p.to(torch.float8_e4m3fn).float() @ v.float()) / p.sum(-1, keepdim=True)
    assert_wrong(judge.check({"out": coarse}))


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_sums_that_cancel_are_accepted(dtype: torch.dtype) -> None:
    # Rows of large pairs that cancel, and small values that must survive the sum.
    wide = random_tensor((64, 512), torch.float64, scale=0.125)
    large = random_tensor((64, 255), torch.float64, seed=1, scale=8.0)
    wide[:, 1:256], wide[:, 257:] = large, -large
    x = wide.to(dtype)
    reference, _ = reference_of(row_sums, x, torch.zeros(64, dtype=dtype), blocks=[16])
    judge = Judge(reference)
    naive = torch.zeros(64)
    for column in x.float().unbind(1):
        naive = naive + column
    backwards = x.float().flip(1).cumsum(1)[:, -1]
    for out in (naive, backwards, x.double().sum(1)):
        report = judge.check({"out": out.to(dtype)})
        assert report.is_right, report.reason
    assert_wrong(judge.check({"out": corrupted(naive.to(dtype), (9,), naive[9] + 1)}), (9,))


@pytest.mark.parametrize("dtype", FP8)
def test_eight_bit_results(dtype: torch.dtype) -> None:
    judge, x, y = judge_product(BF16, dtype)
    out = split_product(x, y, dtype, 8)
    report = judge.check({"out": out})
    assert report.is_right, report.reason
    bits = out.view(torch.uint8).clone()
    bits[4, 4] ^= 4
    assert_wrong(judge.check({"out": bits.view(dtype)}), (4, 4))


@pytest.mark.parametrize("dtype", [F16, torch.float8_e4m3fn])
def test_overflow_may_saturate_and_nothing_else_may(dtype: torch.dtype) -> None:
    x = torch.full((40, 64), 1e4, dtype=F32)
    x[0] = 0.5
    reference, _ = reference_of(row_sums, x, torch.zeros(40, dtype=dtype), blocks=[16])
    judge = Judge(reference)
    as_torch = x.sum(-1).to(dtype)
    largest = torch.finfo(dtype).max
    saturated = x.sum(-1).clamp(max=largest).to(dtype)
    assert judge.check({"out": as_torch}).is_right
    assert judge.check({"out": saturated}).is_right
    assert_wrong(judge.check({"out": corrupted(saturated, (5,), 1.0)}), (5,))
    assert_wrong(judge.check({"out": corrupted(saturated, (0,), math.nan)}), (0,))


def test_nan_and_infinity_must_agree() -> None:
    x = random_tensor((40, 32), F32)
    x[3, 3], x[5, 5] = math.nan, math.inf
    reference, _ = reference_of(row_sums, x, torch.zeros(40), blocks=[16])
    judge = Judge(reference)
    out = x.sum(-1)
    assert judge.check({"out": out}).is_right
    for row, value in ((3, 0.0), (3, math.inf), (5, -math.inf), (5, 1.0), (5, math.nan)):
        assert_wrong(judge.check({"out": corrupted(out, (row,), value)}), (row,))


def test_integers_must_be_equal() -> None:
    x, out = torch.randint(-1000, 1000, (50,)), torch.zeros(100, dtype=torch.int64)
    reference, _ = reference_of(evens, x, out, blocks=[16])
    out[::2] = x * 3
    judge = Judge(reference)
    assert judge.check({"out": out}).is_right
    assert_wrong(judge.check({"out": corrupted(out, (8,), out[8] + 1)}), (8,))


def test_decisions_of_rounding_may_fall_otherwise() -> None:
    # Products of bf16 are rounded, so that some cross a boundary.
    x = random_tensor((4000,), BF16, scale=20.0)
    reference, _ = reference_of(quantized, x, torch.zeros(4000, dtype=torch.int8), blocks=[64])
    out = reference.tensors["out"]
    num_crossed = int((out.native != out.truth).sum())
    assert 0 < num_crossed < 200
    judge = Judge(reference)
    assert judge.check({"out": out.native}).is_right
    assert judge.check({"out": out.truth.to(torch.int8)}).is_right
    assert_wrong(judge.check({"out": out.native + 1}))
    assert_wrong(judge.check({"out": corrupted(out.native, (7,), out.native[7] + 2)}))


def test_sums_of_atomics_may_have_any_order() -> None:
    x = random_tensor((3000,), F32)
    reference, _ = reference_of(histogram, x, torch.zeros(30), blocks=[256])
    judge = Judge(reference)
    rows = x.view(100, 30)
    shuffled = rows[torch.randperm(100, generator=torch.Generator().manual_seed(0))]
    assert judge.check({"out": shuffled.cumsum(0)[-1]}).is_right
    assert_wrong(judge.check({"out": rows[1:].sum(0)}))


def test_larger_errors_on_the_whole_are_found() -> None:
    """Each element alone would pass: the sum of all does not."""
    x = random_tensor((256, 256), F16)
    y = random_tensor((256, 256), F16, seed=1)
    reference, _ = reference_of(matmul, x, y, torch.zeros(256, 256, dtype=F32), blocks=[64, 64, 64])
    judge = Judge(reference)
    right = x.float() @ y.float()
    assert judge.check({"out": right}).is_right
    biased = right + 0.8 * judge_allowance(judge)
    report = judge.check({"out": biased})
    assert "on the whole" in report.reason


def judge_allowance(judge: Judge) -> torch.Tensor:
    standard = judge._standards["out"]._standard
    return standard._allowed.view(256, 256).float()  # type: ignore[union-attr]


def test_the_user_s_tolerance_decides() -> None:
    x = random_tensor((40, 32), F32)
    reference, _ = reference_of(row_sums, x, torch.zeros(40), blocks=[16])
    out = x.sum(-1)
    judge = Judge(reference, Tolerance(atol=0.1))
    assert judge.check({"out": out + 0.09}).is_right
    assert_wrong(judge.check({"out": corrupted(out, (4,), out[4] + 0.11)}), (4,))
    strict = Judge(reference, Tolerance(rtol=1e-12))
    assert not strict.check({"out": out}).is_right


def test_values_from_elsewhere() -> None:
    expected = torch.randn(20, 20)
    judge = Judge.of_expected({"out": expected})
    assert judge.check({"out": expected * 1.005}).is_right
    assert_wrong(judge.check({"out": corrupted(expected, (2, 2), 5.0)}), (2, 2))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (31,), (33, 1), (5, 0, 3)])
def test_shapes_without_rows(shape: tuple[int, ...]) -> None:
    truth = torch.rand(shape, dtype=torch.float64) + 1
    native = truth.float()
    written = torch.ones(shape, dtype=torch.bool)
    judge = Judge(Reference({"out": ReferenceTensor(truth, native, written)}, is_complete=True))
    assert judge.check({"out": native.clone()}).is_right
    if native.numel():
        assert not judge.check({"out": native * 1.001}).is_right


def test_the_worst_of_several_tensors_is_reported() -> None:
    truth = torch.ones(40, dtype=torch.float64)
    tensor = ReferenceTensor(truth, truth.float(), truth > 0)
    judge = Judge(Reference({"a": tensor, "b": tensor}, is_complete=True))
    report = judge.check({"a": truth.float(), "b": truth.float() * 2})
    assert report.reason.startswith("b[")
    assert not report.is_right


def test_a_row_whose_shared_rounding_is_small_by_luck_sets_no_standard() -> None:
    """As after subtracting a mean: its error, one number, moves all of a row."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(200, 64, generator=generator, dtype=torch.float64)

    def run() -> torch.Tensor:
        return (truth + 1e-3 * torch.randn(200, 1, generator=generator)).float()

    tensor = ReferenceTensor(truth, run(), torch.ones_like(truth, dtype=torch.bool))
    judge = Judge(Reference({"out": tensor}, is_complete=True))
    for _ in range(5):
        report = judge.check({"out": run()})
        assert report.is_right, report.reason
    assert_wrong(judge.check({"out": corrupted(run(), (3, 5), truth[3, 5] + 0.03)}), (3, 5))


def test_no_element_is_excused_where_the_kernel_rounds_nothing_but_results() -> None:
    """A wrong small value beside large ones is wrong, however little it is of them."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(50, 64, generator=generator, dtype=torch.float64)
    truth[3, 5] = 1e-9
    tensor = ReferenceTensor(truth, truth.float(), torch.ones_like(truth, dtype=torch.bool))
    judge = Judge(Reference({"out": tensor}, is_complete=True))
    assert judge.check({"out": truth.float()}).is_right
    assert_wrong(judge.check({"out": corrupted(truth.float(), (3, 5), 1e-7)}), (3, 5))
