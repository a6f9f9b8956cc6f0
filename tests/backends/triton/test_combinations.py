"""Combinations of the user's own: modules agree with the reference and compile for every type."""

from __future__ import annotations

import pytest
import torch

from tests.backends.triton.kernels import make, rows
from tests.backends.triton.test_against_reference import compare, sample
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.dtypes import DTYPES_BY_NAME
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.targets import parse_target

DTYPES = ("bool", "i8", "u8", "i32", "i64", "f16", "bf16", "f32", "f64")


def first_of(dtype: str) -> str:
    """Keeps the left element: which lane comes first decides everything."""
    return f"(%left: {dtype}[], %right: {dtype}[]) {{ yield(%left) }}"


def larger_of(dtype: str) -> str:
    return f"""(%left: {dtype}[], %right: {dtype}[]) {{
      %c = elementwise(%left, %right) {{fn="lt"}} : bool[]
      %w = elementwise(%c, %right, %left) {{fn="where"}} : {dtype}[]
      yield(%w)
    }}"""


def scan_text(dtype: str, axis: int, n: int, combine: str, *, reverse: bool) -> str:
    options = f"{{axis={axis}, reverse={str(reverse).lower()}}}"
    return rows(dtype, 9, n, f"%r = scan_with(%x_tile) {options} : {dtype}[tile_m, {n}] {combine}")


def reduce_text(dtype: str, n: int, combine: str) -> str:
    return rows(
        dtype,
        9,
        n,
        f"""
        %s = reduce_with(%x_tile) {{axis=1}} : {dtype}[tile_m] {combine}
        %e = expand_dims(%s) {{axes=[1]}} : {dtype}[tile_m, 1]
        %r = broadcast(%e) : {dtype}[tile_m, {n}]
        """,
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [1, 13, 16])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_first_lane_is_a_valid_one(run, axis, n, reverse):
    x = sample(torch.float32, 9, n)
    text = scan_text("f32", axis, n, first_of("f32"), reverse=reverse)
    compare(run, text, {"tile_m": 4}, x, torch.zeros(9, n))


@pytest.mark.parametrize("n", [1, 13, 16])
def test_reductions_leave_out_invalid_lanes(run, n):
    x = sample(torch.float32, 9, n) - 5
    source = compare(run, reduce_text("f32", n, larger_of("f32")), {"tile_m": 4}, x, x * 0)
    assert ("is_valid" in source) == (n == 13)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bf16"])
def test_element_types_are_kept(run, dtype):
    x = sample(to_torch(DTYPES_BY_NAME[dtype]), 9, 5)
    for text in (
        scan_text(dtype, 1, 5, larger_of(dtype), reverse=True),
        reduce_text(dtype, 5, larger_of(dtype)),
    ):
        compare(run, text, {"tile_m": 4}, x, torch.zeros_like(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_combinations_compile(dtype):
    for text in (
        scan_text(dtype, 1, 13, larger_of(dtype), reverse=True),
        reduce_text(dtype, 13, larger_of(dtype)),
    ):
        artifact = make(text, symbols={"tile_m": 4})
        for target in ("cuda:90", "hip:gfx942"):
            assert compile_artifact(artifact, parse_target(target)).binary


def test_constants_have_the_element_type():
    combine = """(%left: f16[], %right: f16[]) {
      %w = full() {value=0.5} : f16[]
      yield(%w)
    }"""
    artifact = make(scan_text("f16", 1, 13, combine, reverse=False), symbols={"tile_m": 4})
    assert compile_artifact(artifact, parse_target("cuda:90")).binary
    assert "tl.full([], 0.5, tl.float16)" in artifact.source
