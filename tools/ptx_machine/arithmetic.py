"""What instructions compute from the numbers of their operands, lane by lane."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tools.ptx_machine.kinds import KINDS, Kind, Lanes, flushed
from tools.ptx_machine.rounding import DIRECTIONS, directed, odd_fused
from tools.ptx_machine.text import PtxError

Compute = Callable[..., Lanes]
COMPARISONS: dict[str, Compute] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
    "num": lambda x, y: ~(np.isnan(x) | np.isnan(y)),
    "nan": lambda x, y: np.isnan(x) | np.isnan(y),
}
"""Of floats these are false beside NaN, but for ``ne``; with a ``u`` all are true."""
LOGICAL: dict[str, Compute] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def compare(relation: str, kind: Kind, x: Lanes, y: Lanes) -> Lanes:
    """A predicate."""
    if relation in COMPARISONS and not (kind.is_float and relation == "ne"):
        return COMPARISONS[relation](x, y)
    if relation == "ne":
        return np.not_equal(x, y) & ~np.isnan(x) & ~np.isnan(y)
    ordered = compare(relation.removesuffix("u"), kind, x, y)
    return ordered | np.isnan(x) | np.isnan(y)


def divided(x: Lanes, y: Lanes) -> Lanes:
    """The quotient towards zero; by zero it is all ones, as NVIDIA's chips have it."""
    if x.dtype.kind == "f":
        return x / y
    is_zero = y == 0
    divisor = np.where(is_zero, y.dtype.type(1), y)
    down = x // divisor
    is_short = (x - down * divisor != 0) & ((x < 0) != (divisor < 0))
    return np.where(is_zero, ~np.zeros_like(x), down + is_short.astype(x.dtype))


def remainder(x: Lanes, y: Lanes) -> Lanes:
    """What ``divided`` leaves."""
    return np.where(y == 0, x, x - divided(x, y) * y)


def high_product(x: Lanes, y: Lanes) -> Lanes:
    """The upper half of a product."""
    bits = x.dtype.itemsize * 8
    if bits < 64:
        wide = np.int64 if x.dtype.kind == "i" else np.uint64
        product = x.astype(wide) * np.asarray(y).astype(wide)
        return (product >> wide(bits)).astype(x.dtype)
    high = _high_unsigned(x.view(np.uint64), np.asarray(y).view(np.uint64))
    if x.dtype.kind == "i":
        high = high - np.where(x < 0, np.asarray(y).view(np.uint64), np.uint64(0))
        high = high - np.where(y < 0, x.view(np.uint64), np.uint64(0))
    return high.view(x.dtype)


def _high_unsigned(x: Lanes, y: Lanes) -> Lanes:
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    x0, x1, y0, y1 = x & mask, x >> half, y & mask, y >> half
    middle = x1 * y0 + (x0 * y0 >> half)
    return x1 * y1 + (middle >> half) + ((x0 * y1 + (middle & mask)) >> half)


def wide_product(x: Lanes, y: Lanes) -> Lanes:
    """A product of twice the bits."""
    wide = np.dtype(f"{x.dtype.kind}{2 * x.dtype.itemsize}").type
    return x.astype(wide) * np.asarray(y).astype(wide)


def fused(x: Lanes, y: Lanes, z: Lanes) -> Lanes:
    """A product and a sum: what has at most 32 bits is rounded once, by the type."""
    return _fused_doubles(x, y, z) if x.dtype == np.float64 else odd_fused(x, y, z)


def _fused_doubles(x: Lanes, y: Lanes, z: Lanes) -> Lanes:
    long = np.longdouble
    return (x.astype(long) * np.asarray(y).astype(long) + np.asarray(z).astype(long)).astype("f8")


def shifted_left(x: Lanes, count: Lanes) -> Lanes:
    """Beyond all bits nothing is left."""
    bits = x.dtype.itemsize * 8
    amount = np.minimum(count, bits - 1).astype(x.dtype)
    return np.where(np.asarray(count) >= bits, x.dtype.type(0), x << amount)


def shifted_right(x: Lanes, count: Lanes) -> Lanes:
    """Beyond all bits the sign is left."""
    bits = x.dtype.itemsize * 8
    amount = np.minimum(count, bits - 1).astype(x.dtype)
    rest = np.where(x < 0, x.dtype.type(-1), x.dtype.type(0)) if x.dtype.kind == "i" else 0
    return np.where(np.asarray(count) >= bits, rest, x >> amount).astype(x.dtype)


def least(x: Lanes, y: Lanes) -> Lanes:
    """NaN gives way to numbers; -0 is below 0."""
    if np.asarray(x).dtype.kind != "f":
        return np.minimum(x, y)
    # NumPy's own choice among zeros depends on the length of an array.
    lower = np.where(np.signbit(x), x, y)
    return np.where((x == 0) & (y == 0), lower, np.fmin(x, y))


def greatest(x: Lanes, y: Lanes) -> Lanes:
    """NaN gives way to numbers; 0 is above -0."""
    if np.asarray(x).dtype.kind != "f":
        return np.maximum(x, y)
    upper = np.where(np.signbit(x), y, x)
    return np.where((x == 0) & (y == 0), upper, np.fmax(x, y))


def with_nan(choose: Compute) -> Compute:
    """NaN stays (``.NaN``)."""

    def chosen(x: Lanes, y: Lanes) -> Lanes:
        return np.where(np.isnan(x) | np.isnan(y), np.asarray(x).dtype.type(np.nan), choose(x, y))

    return chosen


def field_of(x: Lanes, start: Lanes, length: Lanes) -> Lanes:
    """Some bits of x, extended by their sign if x has one (``bfe``)."""
    bits = x.dtype.itemsize * 8
    start = np.broadcast_to(np.asarray(start).astype(np.int64) & 0xFF, x.shape)
    length = np.broadcast_to(np.asarray(length).astype(np.int64) & 0xFF, x.shape)
    # Behind the last bit of x there is its sign.
    inside = np.minimum(length, np.maximum(bits - start, 0))
    plain = x.view(f"u{x.dtype.itemsize}").astype(np.uint64)
    mask = np.where(
        inside >= 64,
        ~np.uint64(0),
        (np.uint64(1) << np.minimum(inside, 63).astype("u8")) - np.uint64(1),
    )
    field = (
        np.where(start >= bits, np.uint64(0), plain >> np.minimum(start, 63).astype(np.uint64))
        & mask
    )
    if x.dtype.kind == "i":
        last = np.clip(start + length - 1, 0, bits - 1).astype(np.uint64)
        is_negative = ((plain >> last) & np.uint64(1) != 0) & (length > 0)
        field = np.where(is_negative, field | ~mask, field)
    return field.astype(f"u{x.dtype.itemsize}").view(x.dtype)


def inserted(x: Lanes, into: Lanes, start: Lanes, length: Lanes) -> Lanes:
    """The low bits of x take the place of some of another (``bfi``)."""
    bits = np.asarray(into).dtype.itemsize * 8
    count, place = (np.asarray(n).astype(np.uint64) & np.uint64(255) for n in (length, start))
    low = (np.uint64(1) << np.minimum(count, np.uint64(63))) - np.uint64(1)
    low, near = np.where(count >= 64, ~np.uint64(0), low), np.minimum(place, np.uint64(63))
    mask = np.where(place >= 64, np.uint64(0), low << near)
    field = (np.asarray(x).astype(np.uint64) << near) & mask
    mixed = (np.asarray(into).astype(np.uint64) & ~mask) | field
    return mixed.astype(f"u{bits // 8}")


def permuted(x: Lanes, y: Lanes, selector: Lanes) -> Lanes:
    """Four of the eight bytes of two registers (``prmt``)."""
    both = np.asarray(x).astype(np.uint64) | (np.asarray(y).astype(np.uint64) << np.uint64(32))
    result = np.uint64(0)
    for place in range(4):
        choice = (np.asarray(selector).astype(np.uint64) >> np.uint64(4 * place)) & np.uint64(15)
        byte = (both >> (np.uint64(8) * (choice & np.uint64(7)))) & np.uint64(255)
        sign = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
        byte = np.where(choice & np.uint64(8), sign, byte)
        result = result | (byte << np.uint64(8 * place))
    return np.asarray(result).astype(np.uint32)


def combined(x: Lanes, y: Lanes, z: Lanes, table: Lanes) -> Lanes:
    """Any function of three bits (``lop3``)."""
    result = np.zeros_like(x | y | z)
    for place in range(8):
        if int(np.asarray(table).flat[0]) >> place & 1:
            terms = [v if place >> shift & 1 else ~v for v, shift in ((x, 2), (y, 1), (z, 0))]
            result = result | (terms[0] & terms[1] & terms[2])
    return result


def funnel(low: Lanes, high: Lanes, count: Lanes, *, is_left: bool, wraps: bool) -> Lanes:
    """32 of 64 bits (``shf``)."""
    amount = np.asarray(count).astype(np.uint64)
    amount = amount & np.uint64(31) if wraps else np.minimum(amount, np.uint64(32))
    both = np.asarray(low).astype(np.uint64) | (np.asarray(high).astype(np.uint64) << np.uint64(32))
    shifted = (both << amount) >> np.uint64(32) if is_left else both >> amount
    return (shifted & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def leading_zeros(x: Lanes) -> Lanes:
    """How many zeros stand above the highest one."""
    bits = x.dtype.itemsize * 8
    count = np.zeros(x.shape, np.uint32)
    rest = x.astype(np.uint64)
    for _ in range(bits):
        is_open = rest < np.uint64(1) << np.uint64(bits - 1)
        count += is_open
        rest = np.where(is_open, (rest << np.uint64(1)) | np.uint64(1), rest)
        if not is_open.any():
            break
    return np.where(x == 0, np.uint32(bits), count)


def ones(x: Lanes) -> Lanes:
    """How many bits are set."""
    octets = np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, -1)
    return np.unpackbits(octets, axis=-1).sum(-1).astype(np.uint32)


def reversed_bits(x: Lanes) -> Lanes:
    """The first bit is the last."""
    octets = np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, -1)
    turned = np.packbits(np.unpackbits(octets, axis=-1), axis=-1, bitorder="little")[..., ::-1]
    return np.ascontiguousarray(turned).view(x.dtype).reshape(x.shape)


ROUNDINGS: dict[str, Compute] = {
    "rzi": np.trunc,
    "rni": np.rint,
    "rmi": np.floor,
    "rpi": np.ceil,
}


def to_integer(values: Lanes, kind: Kind, rounding: str) -> Lanes:
    """A float as an integer of a kind: what is beyond the ends is the end.

    NaN is 0, but the highest bit alone where one of both types has 64 bits.
    """
    info = np.iinfo(KINDS[kind.name].decode(np.zeros(1, f"u{kind.bits // 8}")).dtype)
    whole = ROUNDINGS[rounding](values.astype(np.float64))
    inside = np.where(np.isnan(whole), 0.0, whole)
    low, high = inside <= float(info.min), inside >= float(info.max)
    plain = np.where(low | high, 0.0, inside)
    exact = plain.astype(np.uint64 if info.min == 0 else np.int64).astype(info.dtype)
    found = np.where(
        low, info.dtype.type(info.min), np.where(high, info.dtype.type(info.max), exact)
    )
    if 64 not in (kind.bits, values.itemsize * 8):
        return found
    highest = np.array(1 << kind.bits - 1, f"u{kind.bits // 8}").view(info.dtype)
    return np.where(np.isnan(whole), highest, found)


def to_tf32(values: Lanes, *, is_away: bool) -> Lanes:
    """10 bits behind the point; ties go away from zero, or to even."""
    bits = values.astype(np.float32, copy=False).view(np.uint32)
    half = (
        np.uint32(0x1000)
        if is_away
        else np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    )
    rounded = (bits + half) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), rounded.view(np.float32), values)


def with_flushing(compute: Compute, kind: Kind) -> Compute:
    """Subnormal operands and results are zeros."""

    def flushing(*values: Lanes) -> Lanes:
        found = np.asarray(compute(*(flushed(np.asarray(x), kind) for x in values)))
        return flushed(found.astype(np.float32) if kind.name == "f32" else found, kind)

    return flushing


UNARY: dict[str, Compute] = {
    "abs": np.abs,
    "neg": np.negative,
    "not": np.invert,
    "sqrt": np.sqrt,
    "rcp": lambda x: x.dtype.type(1) / x,
    "rsqrt": lambda x: 1 / np.sqrt(x.astype(np.float64)),
    "ex2": lambda x: np.exp2(x.astype(np.float64)),
    "lg2": lambda x: np.log2(x.astype(np.float64)),
    "sin": lambda x: np.sin(x.astype(np.float64)),
    "cos": lambda x: np.cos(x.astype(np.float64)),
    "tanh": lambda x: np.tanh(x.astype(np.float64)),
    "clz": leading_zeros,
    "popc": ones,
    "brev": reversed_bits,
}
BINARY: dict[str, Compute] = {
    "add": np.add,
    "sub": np.subtract,
    "div": divided,
    "rem": remainder,
    "min": least,
    "max": greatest,
    "shl": shifted_left,
    "shr": shifted_right,
    "copysign": lambda x, y: np.copysign(y, x),
    **LOGICAL,
}
OTHERS: dict[str, Compute] = {
    "fma": fused,
    "bfe": field_of,
    "bfi": inserted,
    "prmt": permuted,
    "lop3": combined,
}


def find_compute(name: str, modifiers: set[str], kind: Kind) -> Compute:
    """What an instruction computes."""
    compute = _plain(name, modifiers, kind)
    direction = next((word for word in DIRECTIONS if word in modifiers), "")
    if direction and kind.name != "f32":
        raise PtxError(f".{direction} of {kind.name}")
    if direction:
        compute = directed("fma" if name == "mad" else name, direction)
    if "NaN" in modifiers:
        compute = with_nan(compute)
    if "relu" in modifiers:
        compute = _positive(compute)
    if "sat" in modifiers:
        compute = _saturated(compute, kind)
    return with_flushing(compute, kind) if "ftz" in modifiers else compute


def _plain(name: str, modifiers: set[str], kind: Kind) -> Compute:
    if name in ("mul", "mad"):
        return _product(name, modifiers, kind)
    for table in (UNARY, BINARY, OTHERS):
        if name in table:
            return table[name]
    raise PtxError(f"instruction {name!r} is not known")


def positive(values: Lanes) -> Lanes:
    """Zero for what is below it; NaN stays (``relu``)."""
    return np.where(values <= 0, np.zeros_like(values), values)


def _positive(compute: Compute) -> Compute:
    return lambda *values: positive(compute(*values))


def _saturated(compute: Compute, kind: Kind) -> Compute:
    if not kind.is_float:
        raise PtxError("saturated integers")
    return lambda *values: np.nan_to_num(np.clip(compute(*values), 0, 1), nan=0.0)


def _product(name: str, modifiers: set[str], kind: Kind) -> Compute:
    if kind.is_float:
        return fused if name == "mad" else np.multiply
    part = {"hi": high_product, "wide": wide_product}
    times = next((part[word] for word in part if word in modifiers), np.multiply)
    if name == "mul":
        return times
    return lambda x, y, z: times(x, y) + z
