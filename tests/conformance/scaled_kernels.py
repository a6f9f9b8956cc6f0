"""Packed numbers and products with scales, against fp64."""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, integers, randn

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
BF16 = torch.bfloat16


@helion.kernel
def scaled_rows(
    x: torch.Tensor, sx: torch.Tensor, fx: hl.constexpr,
    y: torch.Tensor, sy: torch.Tensor, fy: hl.constexpr,
) -> torch.Tensor:  # fmt: skip
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float32, device=x.device)
    for t, u in hl.tile(out.size()):
        out[t, u] = hl.dot_scaled(x[t, :], sx[t, :], fx, y[:, u], sy[u, :], fy)
    return out


@helion.kernel
def scaled_groups(
    x: torch.Tensor, sx: torch.Tensor, y: torch.Tensor, sy: torch.Tensor
) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float16, device=x.device)
    for t, u in hl.tile(out.size()):
        acc = hl.zeros([t, u], dtype=torch.float32)
        for g in hl.tile(sx.size(1)):
            begin, half = g.begin * 32, g.begin * 16
            left = x[t, half : half + g.block_size * 16]
            right = y[begin : begin + g.block_size * 32, u]
            acc = hl.dot_scaled(left, sx[t, g], "e2m1", right, sy[u, g], "e5m2", acc=acc)
        out[t, u] = acc.to(torch.float16)
    return out


@helion.kernel
def without_scales(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float32, device=x.device)
    for t, u in hl.tile(out.size()):
        out[t, u] = hl.dot_scaled(x[t, :], None, "bf16", y[:, u], None, "fp16")
    return out


@helion.kernel
def halves_of_bytes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    low = torch.empty(x.size(), dtype=torch.float32, device=x.device)
    high = torch.empty_like(low)
    for t in hl.tile(x.size(0)):
        low[t], high[t] = hl.float4_e2m1fn_x2_to_float32(x[t])
    return low, high


@helion.kernel
def groups_of_fp4(x: torch.Tensor, pick: torch.Tensor) -> torch.Tensor:
    out = torch.empty([pick.size(0), 16], dtype=torch.float16, device=x.device)
    for t in hl.tile(pick.size(0)):
        lanes = hl.load_float4_e2m1fn_x16_to_float16(x, pick[t], extra_mask=pick[t] >= 0)
        for lane in hl.static_range(16):
            out[t, lane] = lanes[lane]
    return out


@helion.kernel
def groups_of_bf16(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.numel() // 16, 16], dtype=torch.float16, device=x.device)
    for t in hl.tile(out.size(0)):
        lanes = hl.load_bfloat16_x16_to_float16(x, t.index)
        for lane in hl.static_range(16):
            out[t, lane] = lanes[lane]
    return out


def nibbles(x: torch.Tensor) -> torch.Tensor:
    """The FP4 numbers of bytes in fp64, along a new last dimension."""
    table = torch.tensor([*E2M1, *(-value for value in E2M1)], dtype=torch.float64)
    return torch.stack([table[(x & 15).long()], table[(x >> 4).long()]], -1)


def decoded(x: torch.Tensor, name: str, dim: int) -> torch.Tensor:
    if name == "e2m1":
        pair = nibbles(x)
        return pair.flatten(1) if dim else pair.movedim(-1, 1).flatten(0, 1)
    dtypes = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
    return x.view(dtypes[name]).double() if name in dtypes else x.double()


def scales(s: torch.Tensor) -> torch.Tensor:
    return torch.exp2(s.double() - 127).repeat_interleave(32, 1)


def scaled(
    x: torch.Tensor, sx: torch.Tensor, fx: str, y: torch.Tensor, sy: torch.Tensor, fy: str
) -> torch.Tensor:
    return (decoded(x, fx, 1) * scales(sx)) @ (decoded(y, fy, 0) * scales(sy).T)


def bytes_of(*shape: int, seed: int) -> torch.Tensor:
    return integers(0, 256, *shape, seed=seed).to(torch.uint8)


def matrix(name: str, rows: int, columns: int, seed: int, packed: int) -> torch.Tensor:
    if name == "e2m1":
        return bytes_of(rows // (1 + packed), columns // (2 - packed), seed=seed)
    kinds = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "bf16": BF16}
    return randn(rows, columns, seed=seed).to(kinds.get(name, torch.float16))


def exponents(rows: int, groups: int, seed: int) -> torch.Tensor:
    return integers(120, 134, rows, groups, seed=seed).to(torch.uint8)


def operands(fx: str, fy: str, k: int = 64) -> tuple[Any, ...]:
    x, y = matrix(fx, 19, k, 0, 0), matrix(fy, k, 17, 1, 1)
    return x, exponents(19, k // 32, 2), fx, y, exponents(17, k // 32, 3), fy


def fp4_groups(x: torch.Tensor, pick: torch.Tensor) -> torch.Tensor:
    found = nibbles(x.view(-1, 8)).flatten(1)[pick.clamp(min=0)]
    return torch.where(pick[:, None] < 0, 0.0, found).half()


def grouped(x: torch.Tensor, sx: torch.Tensor, y: torch.Tensor, sy: torch.Tensor) -> torch.Tensor:
    return scaled(x, sx, "e2m1", y, sy, "e5m2")


def group_operands() -> tuple[torch.Tensor, ...]:
    x, sx, _, y, sy, _ = operands("e2m1", "e5m2", 96)
    return x, sx, y, sy


FORMATS = (("e4m3", "e5m2"), ("e2m1", "e2m1"), ("fp16", "e4m3"))

# fmt: off
SCALED = (
    *(Case(f"scaled_rows_{fx}_{fy}", scaled_rows, lambda fx=fx, fy=fy: operands(fx, fy), scaled,
           blocks(16, 16), 64, is_interpretable=False, needs_static_shapes=True)
      for fx, fy in FORMATS),
    Case("scaled_groups", scaled_groups, group_operands, grouped, blocks(16, 16, 2), 96,
         is_interpretable=False),
    Case("without_scales", without_scales,
         lambda: (randn(19, 32, dtype=BF16), randn(32, 17, seed=1, dtype=torch.float16)),
         lambda x, y: x.double() @ y.double(), blocks(16, 16), 32, is_interpretable=False),
    Case("halves_of_bytes", halves_of_bytes, lambda: (torch.arange(256).to(torch.uint8),),
         lambda x: tuple(nibbles(x).float().unbind(-1)), blocks(32), EXACT),
    Case("groups_of_fp4", groups_of_fp4,
         lambda: (bytes_of(5, 24, seed=0), torch.tensor([3, 0, 14, -1, 7, 7, 2])), fp4_groups,
         blocks(4), EXACT),
    Case("groups_of_bf16", groups_of_bf16, lambda: (randn(3, 5, 16, dtype=BF16),),
         lambda x: x.view(-1, 16).half(), blocks(4), EXACT, is_interpretable=False),
)
# fmt: on
