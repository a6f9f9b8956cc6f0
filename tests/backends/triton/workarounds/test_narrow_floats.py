"""Conversions from and to floats of eight bits give torch's values where hardware gives others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.fp8_attention import fp8_attention
from tilesmith import Config
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.backends.triton.workarounds import narrow_conversions

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
TARGET = "cuda:90"


@helion.kernel(static_shapes=True)
def converted(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile].to(out.dtype)
    return out


@helion.kernel(static_shapes=True)
def clamped(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.clamp(x[tile], -448, 448).to(out.dtype)
    return out


def bound(kernel: Any, source: torch.dtype, target: torch.dtype) -> Any:
    args = torch.zeros(256).to(source), torch.zeros(256).to(target)
    return kernel.bind(args, target=TARGET)


@pytest.fixture(autouse=True)
def torch_does_not_saturate(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch before 2.13."""
    monkeypatch.setattr(narrow_conversions, "saturates", lambda: False)


def test_too_large_is_what_torch_makes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    is_nan = bool(torch.tensor(1000.0).to(E4M3).float().isnan())
    args = torch.zeros(128), torch.zeros(128).to(E4M3)  # of another size: code is kept
    assert ("_to_e4m3(" in converted.bind(args, target=TARGET).to_triton_code()) == is_nan


@helion.kernel(static_shapes=True)
def maxima_of_columns(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        a = x[tile, :, :]
        out[tile, :, :] = torch.exp(a - torch.amax(a, 1)[:, :, None]).to(out.dtype)
    return out


def test_maxima_along_another_axis_bound_nothing() -> None:
    args = torch.zeros(4, 16, 16), torch.zeros(4, 16, 16).to(E5M2)
    assert "_to_e5m2(" in maxima_of_columns.bind(args, target=TARGET).to_triton_code()


@pytest.mark.parametrize("source", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_what_is_too_large_is_repaired(source: torch.dtype) -> None:
    assert "_to_e4m3(" in bound(converted, source, E4M3).to_triton_code()
    assert "_to_e5m2(" in bound(converted, source, E5M2).to_triton_code()


def test_bounded_numbers_are_converted_by_the_hardware_alone() -> None:
    assert "_to_e4m3(" not in bound(clamped, torch.float32, E4M3).to_triton_code()
    assert "_to_e5m2(" not in bound(clamped, torch.float32, E5M2).to_triton_code()
    assert "_to_e5m2(" not in bound(converted, torch.int8, E5M2).to_triton_code()
    assert "_to_e4m3(" not in bound(converted, E4M3, E5M2).to_triton_code()
    assert "_to_e4m3(" not in bound(converted, torch.uint8, E4M3).to_triton_code()


def test_other_types_are_repaired_too() -> None:
    assert "_to_e4m3(" in bound(converted, E5M2, E4M3).to_triton_code()
    assert "_to_e4m3(" in bound(converted, torch.int16, E4M3).to_triton_code()
    assert "_to_e5m2(" in bound(converted, torch.int32, E5M2).to_triton_code()


@pytest.mark.parametrize("length", [512, 500])
def test_weights_of_attention_need_no_repair(length: int) -> None:
    q, k, v = (torch.zeros(2, length, 64).to(E4M3) for _ in range(3))
    args = (q, k, v.transpose(1, 2).contiguous())
    code = fp8_attention.bind(args, target=TARGET).to_triton_code(Config(block_sizes=[64, 64]))
    assert ".to(tl.float8e4nv)" in code
    assert "_to_e4m3(" not in code


def test_e5m2_becomes_bf16_by_way_of_fp32() -> None:
    """Triton's own way makes 65536 of an infinity."""
    code = bound(converted, E5M2, torch.bfloat16).to_triton_code()
    assert ".to(tl.float32).to(tl.bfloat16)" in code


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        (torch.float32, E4M3, "cvt.rn.satfinite.e4m3x2.f32"),
        (torch.bfloat16, E5M2, "cvt.rn.satfinite.e5m2x2.f32"),
        (E5M2, torch.bfloat16, "cvt.rn.f16x2.e5m2x2"),
    ],
    ids=str,
)
def test_conversions_compile_to_hardware_instructions(
    source: torch.dtype, target: torch.dtype, found: str
) -> None:
    ptx = compile_artifact(bound(converted, source, target).to_artifact()).assembly["ptx"]
    assert found in ptx


@helion.kernel(static_shapes=True)
def ceilings(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.ceil(x[tile]) + torch.rsqrt(x[tile])
    return out


@helion.kernel(static_shapes=True)
def powers(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.exp2(torch.tanh(x[tile]))
    return out


def test_numbers_below_the_normal_ones_are_kept() -> None:
    """The ceiling of 1e-45 is 1."""
    artifact = ceilings.bind((torch.zeros(256),), target=TARGET).to_artifact()
    assert artifact.options["enable_reflect_ftz"] is False
    assert ".ftz" not in compile_artifact(artifact).assembly["ptx"]


def test_fast_powers_of_two_stay_fast() -> None:
    artifact = powers.bind((torch.zeros(256),), target=TARGET).to_artifact()
    assert "enable_reflect_ftz" not in artifact.options
