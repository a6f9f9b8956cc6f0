"""Numbers among the arguments: read at every launch, or constants where the kernel says so."""

from __future__ import annotations

import math

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc

X = torch.arange(1, 14, dtype=torch.float32)


def scaled() -> helion.Kernel:
    @helion.kernel
    def scale(x, alpha, n):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t] * alpha + n
        return out

    return scale


def test_other_values_need_no_other_trace(traces: list[str]) -> None:
    kernel = scaled()
    for alpha, n in ((0.5, 3), (-1.25, 0), (0.0, -7), (1e20, 2**20), (math.inf, 1)):
        assert torch.equal(kernel(X, alpha, n), X * alpha + n)
    assert traces == ["scale"]


def test_other_kinds_of_number_do(traces: list[str]) -> None:
    kernel = scaled()
    integers = torch.arange(5, dtype=torch.int32)
    assert torch.equal(kernel(integers, 2, 3), integers * 2 + 3)
    result = kernel(integers, 2.0, 3)
    assert torch.equal(result, (integers * 2.0 + 3).int())
    assert len(traces) == 2


def test_integers_of_64_bits_are_kept(traces: list[str]) -> None:
    kernel = scaled()
    wide = torch.arange(5, dtype=torch.int64)
    for n in (1, 2**40, -(2**50), 2**31 - 1, -(2**31)):
        assert torch.equal(kernel(wide, 3, n), wide * 3 + n)
    assert len(traces) == 2, "one for small numbers, one for large ones"


def test_fp64_sees_the_whole_double(traces: list[str]) -> None:
    kernel = scaled()
    wide = X.double()
    for alpha in (0.1, 1 / 3, 1e-300, math.pi):
        assert torch.equal(kernel(wide, alpha, 0), wide * alpha)
    assert len(traces) == 1


def test_half_types_meet_a_number_as_in_eager() -> None:
    kernel = scaled()
    for dtype in (torch.bfloat16, torch.float16):
        half = X.to(dtype)
        assert torch.equal(kernel(half, 0.1, 0), half * 0.1)


def test_bools_are_zero_or_one() -> None:
    kernel = scaled()
    assert torch.equal(kernel(X, True, False), X)
    assert torch.equal(kernel(X, False, True), torch.ones_like(X))


@helion.kernel
def branch(x, flag):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        value = x[t]
        if flag:
            value = value * 2
        out[t] = value
    return out


def test_a_bool_argument_decides_a_branch() -> None:
    assert torch.equal(branch(X, True), X * 2)
    assert torch.equal(branch(X, False), X)


@helion.kernel
def if_positive(x, n):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        value = x[t]
        if n > 0:
            value = value * n
        out[t] = value
    return out


def test_a_runtime_number_decides_at_run_time(traces: list[str]) -> None:
    assert torch.equal(if_positive(X, 3), X * 3)
    assert torch.equal(if_positive(X, -3), X)
    assert len(traces) == 1


@helion.kernel
def unrolled(x, turns: hl.constexpr):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        value = x[t]
        for i in hl.static_range(turns):
            value = value * 2 + i
        out[t] = value
    return out


def doubled(x: torch.Tensor, turns: int) -> torch.Tensor:
    for i in range(turns):
        x = x * 2 + i
    return x


def test_constexpr_parameters_make_a_kernel_per_value(traces: list[str]) -> None:
    for turns in (0, 1, 3, 1):
        assert torch.equal(unrolled(X, turns), doubled(X, turns))
    assert len(traces) == 3


@helion.kernel
def times(x, c: hl.constexpr):
    out = torch.empty_like(x, dtype=torch.promote_types(x.dtype, torch.float32))
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * c
    return out


def test_constants_of_equal_value_and_other_kind_differ(traces: list[str]) -> None:
    integers = torch.tensor([2**24 + 1, 3], dtype=torch.int32)
    # As an int the product is exact in int32; as a float it is rounded to fp32 first.
    assert times(integers, 1).tolist() == times(integers, True).tolist()
    assert times(integers, 1.0).tolist() == (integers * 1.0).tolist()
    assert len(traces) == 3


def test_constexpr_at_the_call(traces: list[str]) -> None:
    @helion.kernel
    def power(x, exponent):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            value = x[t]
            if exponent == 2:
                value = value * value
            out[t] = value
        return out

    assert torch.equal(power(X, hl.constexpr(2)), X * X)  # pyright: ignore[reportCallIssue]
    assert torch.equal(power(X, hl.constexpr(3)), X)  # pyright: ignore[reportCallIssue]
    assert len(traces) == 2


def test_a_runtime_number_cannot_unroll() -> None:
    @helion.kernel
    def unroll(x, turns):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            value = x[t]
            for i in hl.static_range(turns):
                value = value + i
            out[t] = value
        return out

    with pytest.raises(exc.StaticRangeBound):
        unroll(X, 3)


@helion.kernel
def specialised(x, n):
    n = hl.specialize(n)
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        value = x[t]
        for i in hl.static_range(n):
            value = value + i
        out[t] = value
    return out


def test_specialize_makes_a_kernel_per_value(traces: list[str]) -> None:
    for n in (2, 4, 2, 4, 0):
        assert torch.equal(specialised(X, n), X + sum(range(n)))
    # The first trace tells that the value matters.
    assert len(traces) == 3


@helion.kernel
def by_name(x, mode, dtype):
    out = torch.empty_like(x, dtype=dtype)
    for t in hl.tile(x.size(0)):
        if mode == "negate":
            out[t] = -x[t]
        else:
            out[t] = x[t].to(dtype)
    return out


def test_strings_and_dtypes_are_constants(traces: list[str]) -> None:
    assert torch.equal(by_name(X, "negate", torch.float32), -X)
    assert torch.equal(by_name(X, "keep", torch.float16), X.half())
    assert torch.equal(by_name(X, "negate", torch.float32), -X)
    assert len(traces) == 2


@helion.kernel
def in_host_arithmetic(x, n):
    half = n // 2
    limit = max(half, 3) * 1.5
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * half + limit
    return out


def test_host_arithmetic_on_numbers_is_seen() -> None:
    for n in (10, 3, 100, -4):
        expected = X * (n // 2) + max(n // 2, 3) * 1.5
        assert torch.equal(in_host_arithmetic(X, n), expected)
