"""Tensors of packed FP4 numbers: decoded, viewed and stored, never taken for bytes by mistake."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
RAW = torch.arange(256, dtype=torch.uint8).reshape(32, 8)
BACKENDS = ("auto", "reference")


def packed(bytes_: torch.Tensor) -> torch.Tensor:
    return bytes_.view(torch.float4_e2m1fn_x2)


def decoded(nibbles: torch.Tensor) -> torch.Tensor:
    numbers = torch.cat([E2M1, -E2M1])
    return numbers[nibbles.long()]


def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    low = torch.empty(x.size(), dtype=torch.float32, device=x.device)
    high = torch.empty_like(low)
    for t in hl.tile(x.size()):
        low[t], high[t] = hl.float4_e2m1fn_x2_to_float32(x[t])
    return low, high


@pytest.mark.parametrize("static_shapes", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
def test_both_numbers_of_a_byte_are_decoded(backend: Any, static_shapes: bool):
    kernel = helion.kernel(halves, backend=backend, static_shapes=static_shapes)
    for raw in (RAW, RAW[3:17], RAW.T):
        low, high = kernel(packed(raw))
        torch.testing.assert_close(low, decoded(raw & 15), rtol=0, atol=0)
        torch.testing.assert_close(high, decoded(raw >> 4), rtol=0, atol=0)


def products(x: torch.Tensor, sx: torch.Tensor, y: torch.Tensor, sy: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float32, device=x.device)
    for t, u in hl.tile(out.size()):
        out[t, u] = hl.dot_scaled(x[t, :], sx[t, :], "e2m1", y[:, u], sy[u, :], "e2m1")
    return out


def test_products_with_scales_take_them():
    x, y = RAW[:4].repeat(1, 4), RAW[:4].repeat(1, 4).T.contiguous()
    ones = torch.full([4, 2], 127, dtype=torch.uint8)
    kernel = helion.kernel(products)
    expected = kernel(x, ones, y, ones)
    torch.testing.assert_close(kernel(packed(x), ones, packed(y), ones), expected, rtol=0, atol=0)


def words(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.numel() // 8], dtype=torch.float16, device=x.device)
    for t in hl.tile(x.numel() // 8):
        out[t] = hl.load_float4_e2m1fn_x16_to_float16(x, t.index)[3]
    return out


def test_groups_of_sixteen_are_read_of_them():
    found = helion.kernel(words)(packed(RAW))
    torch.testing.assert_close(found, decoded(RAW[:, 1] >> 4).half(), rtol=0, atol=0)


def copied(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size()):
        out[t] = x[t]
    return out


def flipped(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size()):
        out[t] = x[t].view(torch.uint8) ^ 0x88
    return out


@pytest.mark.parametrize("backend", BACKENDS)
def test_tiles_and_bytes_are_stored(backend: Any):
    same, negated = (helion.kernel(f, backend=backend)(packed(RAW)) for f in (copied, flipped))
    assert same.dtype is negated.dtype is torch.float4_e2m1fn_x2
    assert torch.equal(same.view(torch.uint8), RAW)
    assert torch.equal(negated.view(torch.uint8), RAW ^ 0x88)


def converted(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.size(), dtype=torch.float32, device=x.device)
    for t in hl.tile(x.size()):
        out[t] = x[t].to(torch.float32)
    return out


def added(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.size(), dtype=torch.float32, device=x.device)
    for t in hl.tile(x.size()):
        out[t] = 1 + x[t]
    return out


def through_torch(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.size(), dtype=torch.float32, device=x.device)
    for t in hl.tile(x.size()):
        out[t] = torch.relu(x[t])
    return out


@pytest.mark.parametrize("function", [converted, added, through_torch])
def test_bytes_are_not_taken_for_numbers(function: Any):
    with pytest.raises(exc.TypeInferenceError, match=r"float4_e2m1fn_x2_to_float32\(v\)"):
        helion.kernel(function).bind((packed(RAW),))


def as_floats(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.size(), dtype=torch.float32, device=x.device)
    for t in hl.tile(x.size()):
        out[t] = x[t]
    return out


def of_floats(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size()):
        out[t] = hl.zeros(t)
    return out


@pytest.mark.parametrize("function", [as_floats, of_floats])
def test_nothing_is_stored_by_conversion(function: Any):
    with pytest.raises(exc.RequiresTensorInAssignment):
        helion.kernel(function).bind((packed(RAW),))


def test_modules_for_gpus_get_bytes():
    text = helion.kernel(halves).bind((packed(RAW),)).to_triton_code()
    assert "launch(x.view(torch.uint8), low, high)" in text
