from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from functools import cache

import pytest
import torch

from tests.backends.cpu.native_function import (
    AVX2,
    HOST,
    SCALAR,
    SSE,
    LaneFunction,
    Machine,
    NativeFunctions,
)
from tilesmith.backends.cpu.math.casts import bitcast, cast, round_to
from tilesmith.dtypes import (
    ALL_DTYPES,
    BF16,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
    ElementKind,
)
from tilesmith.interpreter.torch_dtypes import to_torch

NARROW = (F16, BF16, F8E4M3, F8E5M2)
MACHINES = (HOST, SCALAR, AVX2, SSE)
_CODES = {8: torch.uint8, 16: torch.int16}


def all_patterns(dtype: DType) -> torch.Tensor:
    """Every value of an 8-bit or 16-bit type."""
    codes = torch.arange(1 << dtype.bits).to(_CODES[dtype.bits])
    return codes.view(to_torch(dtype))


@cache
def _finite_values(dtype: DType) -> list[Fraction]:
    """In order, and one step past the ends, where an unbounded exponent would go on."""
    table = all_patterns(dtype).double()
    finite = sorted({Fraction(x) for x in table[table.isfinite()].tolist()})
    beyond = 2 * finite[-1] - finite[-2]
    return [-beyond, *finite, beyond]


def nearest(dtype: DType, value: Fraction) -> float:
    """Rounded to nearest even by search among all the type's values: the slow, sure way."""
    table = _finite_values(dtype)
    place = min(max(bisect_right(table, value), 1), len(table) - 1)
    low, high = table[place - 1], table[place]
    below, above = value - low, high - value
    is_low = below < above if below != above else _is_even(low, high)
    result = low if is_low else high
    if abs(result) < table[-1]:
        return float(result)
    return math.copysign(448.0 if dtype == F8E4M3 else math.inf, result)


def _is_even(value: Fraction, neighbor: Fraction) -> bool:
    return (value / abs(neighbor - value)) % 2 == 0


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    if actual.dtype.is_floating_point:
        actual, expected = actual.double(), expected.double()
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def casts(pairs: list[tuple[DType, DType]], machine: Machine = HOST) -> NativeFunctions:
    return NativeFunctions(
        [
            LaneFunction(f"{s}_{t}", (s,), t, lambda b, x, s=s, t=t: cast(b, s, t, x))
            for s, t in pairs
        ],
        machine,
    )


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_every_narrow_float_is_read_and_written_exactly(machine):
    pairs = [(dtype, wide) for dtype in NARROW for wide in (F32, F64, dtype)]
    native = casts(pairs, machine)
    for dtype, wide in pairs:
        patterns = all_patterns(dtype)
        assert_same(native(f"{dtype}_{wide}", patterns), patterns.to(to_torch(wide)))


def _around_every_tie(dtype: DType) -> torch.Tensor:
    """Midpoints of neighbors, and the floats next to them."""
    values = all_patterns(dtype).float()
    values = values[values.isfinite()].unique()
    largest = values[-1:] * 2 - values[-2:-1]
    ends = torch.cat([-largest, values, largest]).double()
    middle = ((ends[1:] + ends[:-1]) / 2).float()
    infinity = torch.tensor(math.inf)
    return torch.cat([values, middle, middle.nextafter(infinity), middle.nextafter(-infinity)])


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_single_floats_are_rounded_as_torch_rounds_them(machine):
    native = casts([(F32, dtype) for dtype in NARROW], machine)
    generator = torch.Generator().manual_seed(0)
    anything = torch.randint(-(2**31), 2**31, (200_000,), generator=generator)
    edges = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 3e38, -1e-45, 1e-40])
    for dtype in NARROW:
        x = torch.cat([_around_every_tie(dtype), anything.int().view(torch.float32), edges])
        expected = x.to(to_torch(dtype))
        actual = native(f"{F32}_{dtype}", x)
        assert_same(actual, expected)
        assert bool((actual.float().signbit() == expected.float().signbit())[~x.isnan()].all())


def test_rounding_is_what_storing_would_do():
    native = NativeFunctions(
        [
            LaneFunction(f"{dtype}", (F32,), F32, lambda b, x, d=dtype: round_to(b, d, x))
            for dtype in (*NARROW, F32)
        ]
    )
    for dtype in (*NARROW, F32):
        x = _around_every_tie(dtype if dtype != F32 else F16)
        assert_same(native(str(dtype), x), x.to(to_torch(dtype)).float())


def _doubles_near_ties(dtype: DType) -> torch.Tensor:
    """So near that rounding to single precision first would land on the tie."""
    values = all_patterns(dtype).double()
    values = values[values.isfinite() & (values > 0)].unique()[:: 197 if dtype.bits == 16 else 1]
    middle = values * (1 + 2.0**-dtype.precision)
    nudged = [middle, middle * (1 + 2.0**-45), middle * (1 - 2.0**-45), values * (1 + 2.0**-30)]
    extremes = [1e-300, 1e300, 65519.99999999, 447.99, 464.0000000001, 61439.9999999]
    both = torch.cat([*nudged, torch.tensor(extremes, dtype=torch.float64)])
    return torch.cat([both, -both])


@pytest.mark.parametrize("machine", [HOST, SSE], ids=str)
def test_doubles_are_rounded_once(machine):
    native = casts([(F64, dtype) for dtype in (*NARROW, F32)], machine)
    for dtype in NARROW:
        x = _doubles_near_ties(dtype)
        expected = [nearest(dtype, Fraction(value)) for value in x.tolist()]
        actual = native(f"{F64}_{dtype}", x)
        assert_same(actual, torch.tensor(expected, dtype=torch.float64))
    edges = torch.tensor([math.inf, -math.inf, math.nan], dtype=torch.float64)
    for dtype in (*NARROW, F32):
        assert_same(native(f"{F64}_{dtype}", edges), edges.to(to_torch(dtype)))


def test_wide_integers_are_rounded_once():
    native = casts([(s, t) for s in (I32, U32, I64, U64) for t in (*NARROW, F32)])
    for source in (I32, U32, I64, U64):
        values = _integers_near_ties(source)
        x = torch.tensor(values, dtype=to_torch(source))
        for dtype in NARROW:
            expected = [nearest(dtype, Fraction(value)) for value in values]
            actual = native(f"{source}_{dtype}", x).double()
            assert_same(actual, torch.tensor(expected, dtype=torch.float64))
        assert_same(native(f"{source}_{F32}", x), x.float())


def _integers_near_ties(dtype: DType) -> list[int]:
    top = dtype.bits - (dtype.kind is ElementKind.SIGNED)
    values = {0, 1, 2, 100, 255, 256, 257, 464, 465, 65519, 65520, 61439, 61440, (1 << top) - 1}
    for exponent in range(12, top):
        for tie in (1 << (exponent - 8), 1 << (exponent - 11), 3 << (exponent - 9)):
            base = (1 << exponent) + tie
            values |= {base - 1, base, base + 1}
    if dtype.kind is ElementKind.SIGNED:
        values |= {-value for value in values} | {-(1 << top)}
    return sorted(values)


_INTEGERS = (U8, U16, U32, U64, I8, I16, I32, I64)
_FLOATS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, -0.9, 1.5, 127.9, -128.5, 300.7, -200.3,
           65535.5, -70000.5, 2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0, 3e9, -3e9,
           1e10, -1e10, 9.2e18, 9223372036854775808.0, -9223372036854775808.0, 1e19, 2e19, -1e19,
           1e30)  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_floats_become_integers_as_torch_makes_them(machine):
    native = casts([(s, t) for s in (F16, BF16, F32, F64) for t in _INTEGERS], machine)
    for source in (F16, BF16, F32, F64):
        x = torch.tensor(_FLOATS, dtype=torch.float64).to(to_torch(source))
        for target in _INTEGERS:
            # torch's vectors and scalars disagree on what u32 cannot hold; its scalars do this.
            middle = torch.int64 if target == U32 else to_torch(target)
            assert_same(native(f"{source}_{target}", x), x.to(middle).to(to_torch(target)))


def _edges(dtype: DType) -> torch.Tensor:
    if dtype.is_float:
        values = [value for value in _FLOATS if abs(value) < 100 or not math.isfinite(value)]
        return torch.tensor(values, dtype=torch.float64).to(to_torch(dtype))
    if dtype.is_bool:
        return torch.tensor([False, True])
    low, high = int(dtype.lowest), int(dtype.highest)
    return torch.tensor([0, 1, 2, 100, low, low + 1, high, high - 1], dtype=to_torch(dtype))


@pytest.mark.parametrize("machine", [HOST, SCALAR, SSE], ids=str)
def test_every_pair_of_types_agrees_with_torch(machine):
    # Floats to integers and wide integers to narrow floats have their own tests.
    pairs = [
        (s, t)
        for s in ALL_DTYPES
        for t in ALL_DTYPES
        if not (s.is_float and t.is_integer) and not (s.is_integer and t in NARROW)
    ]
    native = casts(pairs, machine)
    for source, target in pairs:
        x = _edges(source)
        assert_same(native(f"{source}_{target}", x), x.to(to_torch(target)))


_SAME_WIDTH = [
    (I8, F8E4M3), (F8E5M2, U8), (F8E4M3, F8E5M2), (I16, BF16), (F16, U16), (BF16, F16),
    (I32, F32), (F32, U32), (I64, F64), (F64, U64), (U8, I8),
]  # fmt: skip


def test_bits_survive_a_bitcast():
    native = NativeFunctions(
        [
            LaneFunction(f"{s}_{t}", (s,), t, lambda b, x, s=s, t=t: bitcast(b, s, t, x))
            for s, t in _SAME_WIDTH
        ]
    )
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(-(2**63), 2**63 - 1, (4096,), generator=generator)
    for source, target in _SAME_WIDTH:
        x = codes.view(to_torch(source))
        # A NaN may come back as another NaN.
        is_number = ~torch.isnan(x.float()) if source.is_float else torch.ones_like(x).bool()
        assert_same(native(f"{source}_{target}", x)[is_number], x.view(to_torch(target))[is_number])
