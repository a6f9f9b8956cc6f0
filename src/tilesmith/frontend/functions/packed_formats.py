"""Numbers packed into bytes and words: FP4 (e2m1), scales of powers of two (e8m0), groups of 16.

The operands of ``hl.dot_scaled`` are low-precision matrices whose groups of 32 have a common scale;
they are decoded exactly into bfloat16 (float32 where one is float16) and multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.dtypes import BF16, F8E4M3, F8E5M2, F16, F32, I32, U8, U16, U32, U64, DType
from tilesmith.frontend.functions.matmul import product, type_text
from tilesmith.frontend.language.memory import host_tensor, load
from tilesmith.frontend.refusals import invalid_kind, invalid_value
from tilesmith.frontend.tracing.emission import (
    apply,
    broadcast_to,
    cast,
    expand_dims,
    join_pair,
    permute,
    reinterpret,
    reshape,
    unify_dims,
)
from tilesmith.frontend.tracing.packed_tile import PACKED, bytes_of
from tilesmith.frontend.tracing.tensors import TensorRef, reference
from tilesmith.frontend.tracing.tracer import current_tracer
from tilesmith.frontend.tracing.values import TileValue, shape_text
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.types import Dim

_LANES = 16
_WORD_BYTES = 8


def decode_e2m1(nibbles: TileValue) -> TileValue:
    """The fp16 numbers whose four bits are the last of each integer."""
    magnitude = apply("shl", apply("and", nibbles, 7), 9)
    sign = apply("shl", apply("and", nibbles, 8), 12)
    bits = reinterpret(cast(apply("or", magnitude, sign), U16), F16)
    # The exponent's bias is 1 there and 15 here; what has no exponent comes out right as well.
    return apply("mul", bits, 2.0**14)


def decode_pair(packed: TileValue) -> tuple[TileValue, TileValue]:
    """Both fp16 numbers of each byte, the low half first."""
    whole = cast(packed, I32)
    return decode_e2m1(whole), decode_e2m1(apply("shr", whole, 4))


def decode_e8m0(scale: TileValue) -> TileValue:
    """``2 ** (byte - 127)`` in fp32; NaN for 255."""
    exponent = cast(scale, U32)
    bits = apply("shl", exponent, 23)
    # 2^-127 is subnormal in fp32, and 255 stands for NaN.
    bits = apply("where", apply("eq", exponent, 0), 0x0040_0000, bits, dtype=U32)
    bits = apply("where", apply("eq", exponent, 255), 0x7FC0_0000, bits, dtype=U32)
    return reinterpret(bits, F32)


def float4_e2m1fn_x2_to_float32(v: Any) -> tuple[TileValue, TileValue]:
    """The two FP4 numbers of each byte as float32, the low half first.

    Example:
        ``low, high = hl.float4_e2m1fn_x2_to_float32(packed[t])``
    """
    name = "hl.float4_e2m1fn_x2_to_float32"
    current_tracer(name)
    v = bytes_of(v)
    if not isinstance(v, TileValue) or v.tile.dtype != U8:
        raise invalid_kind(name, f"the value is {type_text(v)}, expected bytes (uint8)")
    low, high = decode_pair(v)
    return cast(low, F32), cast(high, F32)


def load_float4_e2m1fn_x16_to_float16(
    storage: Any, group_offsets: Any, extra_mask: Any = None
) -> tuple[TileValue, ...]:
    """The 16 FP4 numbers of each group of 8 bytes, as 16 float16 tensors.

    Example:
        ``lanes = hl.load_float4_e2m1fn_x16_to_float16(packed, t.index)``
    """
    name = "hl.load_float4_e2m1fn_x16_to_float16"
    words = _words_of(name, storage, torch.uint8, PACKED)
    word = cast(load(words, [group_offsets], extra_mask), U64)
    nibbles = (cast(apply("shr", word, 4 * lane), I32) for lane in range(_LANES))
    return tuple(map(decode_e2m1, nibbles))


def load_bfloat16_x16_to_float16(
    storage: Any, group_offsets: Any, extra_mask: Any = None
) -> tuple[TileValue, ...]:
    """The 16 bfloat16 numbers of each group, as 16 float16 tensors.

    Example:
        ``lanes = hl.load_bfloat16_x16_to_float16(x, t.index)``
    """
    words = _words_of("hl.load_bfloat16_x16_to_float16", storage, torch.bfloat16)
    first = apply("mul", group_offsets, 4)
    found: list[TileValue] = []
    for number in range(4):
        word = cast(load(words, [apply("add", first, number)], extra_mask), U64)
        for lane in range(4):
            bits = cast(apply("shr", word, 16 * lane), U16)
            found.append(cast(reinterpret(bits, BF16), F16))
    return tuple(found)


def _words_of(name: str, storage: Any, dtype: torch.dtype, *same: torch.dtype) -> TensorRef:
    """A dense tensor as a line of 64-bit words."""
    tracer = current_tracer(name)
    ref = host_tensor(storage, name)
    tensor = ref.host_tensor
    problem = ""
    with tracer.eager():
        if tensor.dtype not in (dtype, *same):
            problem = f"the storage has dtype {tensor.dtype}, expected {dtype}"
        elif not tensor.is_contiguous():
            problem = "the storage has gaps, expected a contiguous tensor"
        elif tensor.nbytes % _WORD_BYTES or tensor.storage_offset() * tensor.itemsize % _WORD_BYTES:
            problem = "the storage is not made of whole 64-bit words"
        if not problem:
            words = tensor.view(-1).view(torch.int64)
            return reference(tracer, words, f"{ref.source}.view(-1).view(torch.int64)")
    raise invalid_kind(name, problem)


_DOT_SCALED = "hl.dot_scaled"
_SCALED_GROUP = 32
_FORMATS: dict[str, tuple[DType, ...]] = {
    "e2m1": (U8,),
    "e4m3": (F8E4M3, U8),
    "e5m2": (F8E5M2, U8),
    "bf16": (BF16,),
    "fp16": (F16,),
}
"""The element types a format may come in; bytes are read as what the format says."""


@dataclass(frozen=True)
class _Operand:
    """One matrix with its scale; ``axis`` is the contracted one."""

    name: str
    matrix: Any
    scale: Any
    format: Any
    axis: int


def dot_scaled(  # noqa: PLR0913, PLR0917
    mat1: Any,
    mat1_scale: Any,
    mat1_format: str,
    mat2: Any,
    mat2_scale: Any,
    mat2_format: str,
    acc: Any = None,
    out_dtype: torch.dtype | None = None,
) -> TileValue:
    """Product of two matrices with a power of two for each 32 elements along k.

    Example:
        ``acc = hl.dot_scaled(x[tm, :], sx[tm, :], "e4m3", y[:, tn], sy[tn, :], "e2m1", acc=acc)``
    """
    current_tracer(_DOT_SCALED)
    operands = (
        _Operand("mat1", bytes_of(mat1), mat1_scale, mat1_format, 1),
        _Operand("mat2", bytes_of(mat2), mat2_scale, mat2_format, 0),
    )
    for operand in operands:
        _check(operand)
    # Eight bits of precision hold every format but float16.
    common = F32 if "fp16" in (mat1_format, mat2_format) else BF16
    lhs, rhs = (_scaled(operand, common) for operand in operands)
    if acc is not None and (not isinstance(acc, TileValue) or acc.tile.dtype not in (F16, F32)):
        problem = f"acc is {type_text(acc)}, expected float32 or float16"
        raise invalid_kind(_DOT_SCALED, problem)
    result = product(lhs, rhs, _DOT_SCALED, acc=acc, precision="ieee")
    return result if out_dtype is None else cast(result, from_torch(out_dtype))


def _check(operand: _Operand) -> None:
    name, matrix, scale = operand.name, operand.matrix, operand.scale
    if operand.format not in _FORMATS:
        raise invalid_value(
            _DOT_SCALED, f"{name}_format={operand.format!r} is none of {', '.join(_FORMATS)}"
        )
    allowed = _FORMATS[operand.format]
    wanted = " or ".join(dtype.name for dtype in allowed)
    problem = ""
    if not isinstance(matrix, TileValue) or matrix.tile.dtype not in allowed:
        expected = f"{wanted} for the format {operand.format}"
        problem = f"{name} is {type_text(matrix)}, expected {expected}"
    elif scale is not None and (not isinstance(scale, TileValue) or scale.tile.dtype != U8):
        found = type_text(scale)
        problem = f"{name}_scale is {found}, expected exponents as bytes (uint8), or None"
    elif matrix.tile.rank != 2 or (scale is not None and scale.tile.rank != 2):
        problem = f"{name} and its scale must be matrices"
    if problem:
        raise invalid_kind(_DOT_SCALED, problem)


def _scaled(operand: _Operand, dtype: DType) -> TileValue:
    matrix = _decoded(operand)
    if operand.scale is None:
        return cast(matrix, dtype)
    scale = decode_e8m0(operand.scale)
    if operand.axis == 0:
        # Scales of the right operand stand by column: [n, k // 32].
        scale = permute(scale, (1, 0))
    scale = _spread(scale, operand.axis, matrix.tile.shape[operand.axis])
    if unify_dims(scale.tile.shape[operand.axis], matrix.tile.shape[operand.axis]) is None:
        raise errors.DotShapeMismatch(
            operation=_DOT_SCALED,
            left=shape_text(matrix.tile.shape),
            right=f"its scale {shape_text(scale.tile.shape)}",
        )
    scale = broadcast_to(scale, matrix.tile.shape)
    return cast(apply("mul", cast(matrix, F32), scale), dtype)


def _spread(scale: TileValue, axis: int, wanted: Dim) -> TileValue:
    """Each scale 32 times along k, unless it has a column for each element already."""
    shape = scale.tile.shape
    if shape[axis] == wanted:
        return scale
    wide = expand_dims(scale, (axis + 1,))
    repeated = (*shape[: axis + 1], Dim.of(_SCALED_GROUP), *shape[axis + 1 :])
    joint = (*shape[:axis], shape[axis] * Dim.of(_SCALED_GROUP), *shape[axis + 1 :])
    return reshape(broadcast_to(wide, repeated), joint)


def _decoded(operand: _Operand) -> TileValue:
    matrix = operand.matrix
    if operand.format != "e2m1":
        return reinterpret(matrix, _FORMATS[operand.format][0])
    pair = join_pair(*decode_pair(matrix))
    rows, columns = matrix.tile.shape
    if operand.axis == 1:
        return reshape(pair, (rows, columns * Dim.of(2)))
    return reshape(permute(pair, (0, 2, 1)), (rows * Dim.of(2), columns))
