"""Stand-ins for what emitted Gluon modules call, on tensors of the CPU; layouts are ignored."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from tests.backends.triton.warp_roles.gluon_memory import allocate

Tensor = torch.Tensor
Role = Generator[Any, Any, None]


def quotient(a: Any, b: Any) -> Any:
    """Rounded as the device does."""
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return torch.div(a, b, rounding_mode="trunc")


def remainder(a: Any, b: Any) -> Any:
    """What such a division leaves."""
    return a - b * quotient(a, b)


def as_type(x: Any, *dtype: Any, **options: Any) -> Any:
    """A tile of another type, or the number itself."""
    return x.to(*dtype, **options) if isinstance(x, Tensor) else x


def _load(pointer: Any, **options: Any) -> Any:
    """A tile, or a number that positions may depend on."""
    found = pointer.load(**options)
    return int(found) if found.dim() == 0 and not found.is_floating_point() else found


@dataclass
class Program:
    """Where a program runs, for stand-ins that ask."""

    number: int = 0
    roles: list[Role] = field(default_factory=list)


def _largest(a: Any, b: Any, **_: Any) -> Any:
    return _extremum(max, torch.maximum, a, b)


def _smallest(a: Any, b: Any, **_: Any) -> Any:
    return _extremum(min, torch.minimum, a, b)


def _extremum(plain: Callable[..., Any], of_tiles: Callable[..., Any], a: Any, b: Any) -> Any:
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        return plain(a, b)
    dtype = (a if isinstance(a, Tensor) else b).dtype
    return of_tiles(torch.as_tensor(a, dtype=dtype), torch.as_tensor(b, dtype=dtype))


def _reduce(x: Tensor, axis: int, combine: Callable[[Any, Any], Any]) -> Tensor:
    found, *rest = x.unbind(axis)
    for item in rest:
        found = combine(found, item)
    return found


def _where(condition: Any, x: Any, y: Any) -> Any:
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        return x if condition else y
    dtype = x.dtype if isinstance(x, Tensor) else y.dtype
    return torch.where(condition, torch.as_tensor(x, dtype=dtype), torch.as_tensor(y, dtype=dtype))


def _pack(low: Tensor, high: Tensor) -> Tensor:
    low, high = (x.contiguous().view(torch.int16).int() for x in (low, high))
    return (low & 0xFFFF) | (high << 16)


def _unpack(pairs: Tensor, dtypes: Sequence[torch.dtype]) -> tuple[Tensor, ...]:
    halves = ((pairs << 16) >> 16, pairs >> 16)
    return tuple(half.to(torch.int16).view(dtype) for half, dtype in zip(halves, dtypes))


def _pack_fp8(*quads: Tensor) -> Tensor:
    """Numbers of lanes 0 to 3, which hold two neighbours of each half of 16, in their order."""
    low = torch.stack(quads[:2], -1).flatten(-2)
    high = torch.stack(quads[2:], -1).flatten(-2)
    whole = torch.cat([low, high], -1).to(torch.float8_e4m3fn)
    return whole.contiguous().view(torch.int32)


def _pack_ordered_fp8(*quads: Tensor) -> Tensor:
    """Four numbers of a lane, as it holds them."""
    whole = torch.stack(quads, -1).to(torch.float8_e4m3fn)
    return whole.contiguous().view(torch.int32).squeeze(-1)


def _in_pairs(text: str, args: Sequence[Any], dtype: torch.dtype) -> Tensor:
    """Rounded to bf16; then, as the text says, times the parts of a factor."""
    x, *factors = args
    exact = x.to(torch.bfloat16 if "bf16x2" in text else torch.float16)
    parts = [
        torch.tensor(factor & 0xFFFF).to(torch.int16).view(torch.bfloat16) for factor in factors
    ]
    if "$4, pair;" in text:
        exact = _round_once(exact.double() * parts[0].double() + exact.double())
    elif parts:
        low = (exact.float() * parts[1].float()).bfloat16().double() if parts[1:] else 0.0
        exact = _round_once(exact.double() * parts[0].double() + low)
    return exact.to(dtype)


def _round_once(x: Tensor) -> Tensor:
    """To eight bits: torch would round to fp32 before."""
    fraction, exponent = torch.frexp(x)
    return torch.where(x.isfinite(), torch.ldexp(torch.round(fraction * 256), exponent - 8), x)


def _largest_of_pairs(text: str, args: Sequence[Tensor], dtype: Any) -> Any:
    """What a maximum over packed pairs is made of."""
    if "max.NaN" in text:
        a, b = (torch.stack(_unpack(arg, [torch.bfloat16] * 2)) for arg in args)
        return _pack(*torch.maximum(a, b))
    if len(args) == 2:
        return _pack(*(arg.to(torch.bfloat16) for arg in args))
    return tuple(half.to(dtype[0]) for half in _unpack(args[0], [torch.bfloat16] * 2))


def unpack_fp8(pairs: Tensor, *_: Any) -> Tensor:
    """What was packed."""
    return pairs.contiguous().view(torch.float8_e4m3fn).flatten(1)


def _inline_asm(
    text: str, constraints: str, args: Sequence[Tensor], dtype: Any, *, is_pure: bool, pack: int
) -> Any:
    """What the few instructions that modules spell out do."""
    del constraints, pack
    if "st.volatile" in text or text == "mov.b32 $0, $1;":
        return args[0]
    assert is_pure
    if text.startswith("mov.b32 $0"):
        return _pack(*args)
    if text.startswith("mov.b32 {$0"):
        return _unpack(args[0], dtype)
    if "e4m3x2" in text:
        return _pack_fp8(*args) if "shfl" in text else _pack_ordered_fp8(*args)
    is_pair = text.startswith(("max.NaN", "cvt.rn.bf16x2.f32 $0", "shl.b32 $0"))
    if is_pair and dtype is not torch.bfloat16:
        return _largest_of_pairs(text, args, dtype)
    if text.startswith("rcp.") or "testp.finite" in text:
        above, below = (1.0, args[0]) if len(args) == 1 else args[:2]
        return above / below
    if "copysign" in text:
        above, below, signed = args
        return (above / below).clamp(max=1.0).copysign(signed)
    assert "cvt.rn." in text
    return _in_pairs(text, args, dtype)


def nothing(*_: Any, **__: Any) -> None:
    """For what has no meaning here."""
    return


def gluon_language(program: Program) -> SimpleNamespace:
    """``triton.experimental.gluon.language`` for one program."""
    names = ("NVMMADistributedLayout", "NVMMASharedLayout", "SliceLayout", "DotOperandLayout")
    names += ("BlockedLayout",)
    names = (*names, "BlockedLayout")
    dtypes = ("bfloat16", "float16", "float32", "int32", "int64", "uint8")
    return SimpleNamespace(
        float8e4nv=torch.float8_e4m3fn,
        **dict.fromkeys(names, nothing),
        **{name: getattr(torch, name) for name in dtypes},
        **{name: getattr(torch, name) for name in ("exp2", "exp", "log2", "log", "sqrt", "abs")},
        constexpr=lambda value: value,
        program_id=lambda axis: program.number if axis == 0 else 0,
        warp_specialize=lambda parts, *_: program.roles.extend(f(*args) for f, args in parts),
        allocate_shared_memory=allocate,
        static_range=range,
        cdiv=lambda a, b: quotient(a + b - 1, b),
        maximum=_largest,
        minimum=_smallest,
        reduce=_reduce,
        where=_where,
        div_rn=torch.div,
        sum=lambda x, axis: x.sum(axis),
        max=lambda x, axis: x.amax(axis),
        arange=torch.arange,
        full=lambda shape, value, dtype, *_: torch.full(shape, value, dtype=dtype),
        zeros=lambda shape, dtype, *_: torch.zeros(shape, dtype=dtype),
        fma=lambda x, y, z: torch.as_tensor(x * y + z, dtype=torch.float32),
        join=lambda x, y: torch.stack([x, y], -1),
        inline_asm_elementwise=_inline_asm,
        convert_layout=lambda x, *_: x,
        reshape=lambda x, shape: x.reshape(shape),
        permute=lambda x, order: x.permute(order),
        split=lambda x: x.unbind(-1),
        set_auto_layout=lambda x, *_: x,
        load=_load,
        store=lambda pointer, value, **options: pointer.store(value, **options),
    )
