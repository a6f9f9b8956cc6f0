# type: ignore
"""Kernels with Triton code and assembly of their own."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import tilesmith as helion
import tilesmith.language as hl

SCALE = 3
LIMIT = tl.constexpr(2.0)
TEXT = """
@triton.jit
def plus_one(v):
    return v + 1


@triton.jit
def twice_plus_one(v):
    return plus_one(v) + v
"""


@triton.jit
def scaled(a):
    return a * SCALE


@triton.jit
def combine(a, b, K: tl.constexpr):
    return tl.minimum(scaled(a), LIMIT) + b * K


@helion.kernel(config=helion.Config(block_sizes=[16]))
def expression(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile]
        out[tile] = hl.inline_triton("tl.where({0} > 0, {0}, {1})", [value, 5], value)
    return out


@helion.kernel(config=helion.Config(block_sizes=[16]))
def statements_with_names(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        tmp = x[tile] + 1
        code = """
            tmp = {a} * 2  # another variable than the kernel's
            tmp + {b}
        """
        value = hl.inline_triton(code, {"a": x[tile], "b": tmp}, tmp)
        out[tile] = value + tmp
    return out


@helion.kernel(config=helion.Config(block_sizes=[16]))
def store_through_a_pointer(x, marks):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        hl.inline_triton(
            "tl.store({p} + {i}, {v}, mask={i} < {n})",
            {"p": marks, "i": tile.index, "v": x[tile] * 2, "n": 3},
            None,
        )
        out[tile] = marks[tile]
    return out


@helion.kernel(config=helion.Config(block_sizes=[16]))
def two_results(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile]
        up, whole = hl.inline_triton("{0} + 1, {0}.to(tl.int32)", [value], (value, tile.index))
        out[tile] = up * whole
    return out


@helion.kernel(config=helion.Config(block_sizes=[1, 16]))
def matrix_with_rows_of_one(x):
    out = torch.empty_like(x)
    for tm, tn in hl.tile(x.shape):
        value = x[tm, tn]
        out[tm, tn] = hl.inline_triton("tl.sum({0}, 1)[:, None] + {0}", [value], value)
    return out


@helion.kernel(config=helion.Config(block_sizes=[16]))
def jitted_function(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        a, b = x[tile], y[tile]
        first = hl.triton_kernel(combine, [a, b, 4], a)
        second = hl.triton_kernel("combine", {"a": b, "b": a, "K": 2}, a)
        third = hl.triton_kernel(TEXT, [a], a)
        out[tile] = first + second + third
    return out


@helion.kernel(config=helion.Config(block_sizes=[16]))
def assembly(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        power = hl.inline_asm_elementwise(
            "ex2.approx.f32 $0, $1;", "=f,f", [x[tile]], torch.float32, True, 1
        )
        low, high = hl.inline_asm_elementwise(
            "min.f32 $0, $2, $3;\n max.f32 $1, $2, $3;",
            "=f,=f,f,f",
            [x[tile], y[tile]],
            (torch.float32, torch.float32),
            is_pure=True,
            pack=1,
        )
        clock = hl.inline_asm_elementwise("mov.u32 $0, 7;", "=r", [], torch.int32, True, 1)
        out[tile] = power + low * high + clock
    return out


@helion.kernel(config=helion.Config(block_sizes=[16]))
def pure_assembly_twice(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        a = hl.inline_asm_elementwise("abs.f32 $0, $1;", "=f,f", [x[tile]], torch.float32, True, 1)
        b = hl.inline_asm_elementwise("abs.f32 $0, $1;", "=f,f", [x[tile]], torch.float32, True, 1)
        out[tile] = a + b
    return out


@helion.kernel(config=helion.Config(block_sizes=[16]))
def impure_assembly_twice(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        a = hl.inline_asm_elementwise("abs.f32 $0, $1;", "=f,f", [x[tile]], torch.float32, False, 1)
        b = hl.inline_asm_elementwise("abs.f32 $0, $1;", "=f,f", [x[tile]], torch.float32, False, 1)
        hl.inline_asm_elementwise("abs.f32 $0, $1;", "=f,f", [x[tile]], torch.float32, False, 1)
        out[tile] = a + b
    return out


@helion.kernel(config=helion.Config(block_sizes=[16]))
def wrong_type(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile]
        out[tile] = hl.inline_triton("{0}.to(tl.int32)", [value], value)
    return out
