"""Numbers packed into bytes and words: FP4 (e2m1), scales of powers of two (e8m0), groups of 16."""

from __future__ import annotations

from typing import Any

import torch

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import BF16, F16, F32, I32, U8, U16, U32, U64
from tilesmith.frontend.language.memory import host_tensor, load
from tilesmith.frontend.tracing.emission import apply, cast, reinterpret
from tilesmith.frontend.tracing.tensors import TensorRef, reference
from tilesmith.frontend.tracing.tracer import current_tracer
from tilesmith.frontend.tracing.values import TileValue

_GROUP = 16
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
    if not isinstance(v, TileValue) or v.tile.dtype != U8:
        found = v.tile.dtype.name if isinstance(v, TileValue) else kind_of(v)
        raise errors.InvalidArgumentKind(
            function=name, problem=f"the value is {found}, expected bytes (uint8)"
        )
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
    words = _words_of(name, storage, torch.uint8)
    word = cast(load(words, [group_offsets], extra_mask), U64)
    nibbles = (cast(apply("shr", word, 4 * lane), I32) for lane in range(_GROUP))
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


def _words_of(name: str, storage: Any, dtype: torch.dtype) -> TensorRef:
    """A dense tensor as a line of 64-bit words."""
    tracer = current_tracer(name)
    ref = host_tensor(storage, name)
    tensor = ref.host_tensor
    problem = ""
    with tracer.eager():
        if tensor.dtype != dtype:
            problem = f"the storage has dtype {tensor.dtype}, expected {dtype}"
        elif not tensor.is_contiguous():
            problem = "the storage has gaps, expected a contiguous tensor"
        elif tensor.nbytes % _WORD_BYTES or tensor.storage_offset() * tensor.itemsize % _WORD_BYTES:
            problem = "the storage is not made of whole 64-bit words"
        if not problem:
            words = tensor.view(-1).view(torch.int64)
            return reference(tracer, words, f"{ref.source}.view(-1).view(torch.int64)")
    raise errors.InvalidArgumentKind(function=name, problem=problem)
