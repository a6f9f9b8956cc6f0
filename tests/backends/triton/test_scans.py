"""Scans: emitted modules agree with the reference interpreter and compile for every type."""

from __future__ import annotations

import pytest
import torch

from tests.backends.triton.kernels import make, rows
from tests.backends.triton.test_against_reference import compare, sample
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.dtypes import DTYPES_BY_NAME
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.ops.reduction import SCAN_KINDS
from tilesmith.targets import parse_target


def scan_text(dtype: str, kind: str, axis: int, n: int, *, reverse: bool) -> str:
    options = f'{{axis={axis}, kind="{kind}", reverse={str(reverse).lower()}}}'
    return rows(dtype, 9, n, f"%r = scan(%x_tile) {options} : {dtype}[tile_m, {n}]")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("tile_m", [1, 4])
@pytest.mark.parametrize("n", [1, 13, 16])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", SCAN_KINDS)
def test_scans_of_floats(run, kind, axis, n, tile_m, reverse):
    x = sample(torch.float32, 9, n) - 2
    x[2, n // 2] = float("nan")
    text = scan_text("f32", kind.value, axis, n, reverse=reverse)
    compare(run, text, {"tile_m": tile_m}, x, torch.zeros(9, n))


@pytest.mark.parametrize("kind", SCAN_KINDS)
@pytest.mark.parametrize("dtype", ["i8", "i32", "i64", "u8", "f16", "f64"])
def test_scans_keep_the_element_type(run, kind, dtype):
    x = sample(to_torch(DTYPES_BY_NAME[dtype]), 9, 5)
    text = scan_text(dtype, kind.value, 1, 5, reverse=True)
    compare(run, text, {"tile_m": 4}, x, torch.zeros_like(x))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", SCAN_KINDS)
@pytest.mark.parametrize("dtype", ["i8", "i64", "u32", "f16", "bf16", "f32", "f64"])
def test_scans_compile(dtype, kind, reverse):
    artifact = make(scan_text(dtype, kind.value, 1, 13, reverse=reverse), symbols={"tile_m": 4})
    for target in ("cuda:90", "hip:gfx942"):
        assert compile_artifact(artifact, parse_target(target)).binary
