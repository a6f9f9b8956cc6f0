"""Native code reads off tensors what torch says of them."""

from __future__ import annotations

import itertools
import struct
import sys
from functools import reduce
from pathlib import Path

import pytest
import torch

from tests.runtime.native.programs import scalar, tensor
from tilesmith.runtime.calls.reader import Layout, plan_reading, process_readers
from tilesmith.settings import Settings

READER = process_readers().get(Path(Settings().cache_dir))
pytestmark = pytest.mark.skipif(READER is None, reason=process_readers().obstacle)
ADDRESS, SIZE, STRIDE = range(3)


def make_layout(num_tensors: int, *entries: tuple[int, int, int]) -> Layout:
    assert READER is not None
    return READER.Layout(num_tensors, entries)


def addresses_of(count: int) -> Layout:
    return make_layout(count, *((position, ADDRESS, 0) for position in range(count)))


TENSORS = [
    torch.zeros(5),
    torch.zeros(65, dtype=torch.bfloat16)[1:],
    torch.zeros(4, 6).t()[2:],
    torch.zeros(()),
    torch.zeros(0, 3),
    torch.nn.Parameter(torch.zeros(3)),
    torch.zeros(3, dtype=torch.complex64).conj(),
    torch.zeros(8, dtype=torch.float8_e4m3fn)[3:],
    torch.zeros(8, dtype=torch.bool)[7:],
    torch.zeros(4, dtype=torch.uint64),
    torch.zeros(4, dtype=torch.float4_e2m1fn_x2),
    torch.zeros(4, dtype=torch.bits8),  # unknown to DLPack
    torch.zeros(2).expand(3, 2),
]


@pytest.mark.parametrize("count", [0, 1, 2, len(TENSORS), 100])
def test_addresses_are_those_of_torch(count: int):
    tensors = (TENSORS * 10)[:count]
    addresses = [tensor.data_ptr() for tensor in tensors]
    low, *found = addresses_of(count).values(*tensors)
    assert found == addresses
    assert low == reduce(int.__or__, addresses, 0) & 15
    assert addresses_of(count).packed(*tensors) == struct.pack(f"={count}Q", *addresses)


def test_low_bits_of_each_tensor_count():
    base = torch.zeros(64, dtype=torch.uint8)
    base = base[-base.data_ptr() % 16 :]
    for first in (0, 1, 2, 8, 16):
        for second in (0, 4, 15):
            low = addresses_of(2).values(base[first:], base[second:])[0]
            assert low == (first | second) & 15


class Wrapped(torch.Tensor):
    """May do anything in ``data_ptr``."""

    def data_ptr(self) -> int:
        return 7


def test_other_classes_are_asked_for_their_address():
    x = torch.zeros(3).as_subclass(Wrapped)
    assert addresses_of(1).values(x) == (7, 7)
    assert addresses_of(1).packed(x) == struct.pack("=Q", 7)


class Broken:
    def __init__(self, address: object) -> None:
        self.address = address

    def data_ptr(self) -> object:
        return self.address


class NoMemory:
    """As tensors of fake mode."""

    def __init__(self, count: int) -> None:
        self.count = count

    def data_ptr(self) -> int:
        return 0

    def numel(self) -> int:
        return self.count


def test_elements_without_memory_are_an_error():
    layout = addresses_of(2)
    x, nothing = torch.zeros(3), NoMemory(3)
    for read in (layout.values, layout.packed):
        with pytest.raises(ValueError, match="no memory"):
            read(x, nothing)  # pyright: ignore
        with pytest.raises(ValueError, match="no memory"):
            torch.func.functionalize(read)(x, x)
    assert layout.values(torch.zeros(0), NoMemory(0)) == (0, 0, 0)  # pyright: ignore


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, AttributeError),
        (Broken("text"), TypeError),
        (Broken(-1), OverflowError),
        (Broken(2**64), OverflowError),
        (torch.zeros(4, 4).to_sparse(), RuntimeError),
    ],
)
def test_what_has_no_address_is_an_error(value, error: type[Exception]):
    for read in (addresses_of(2).values, addresses_of(2).packed):
        with pytest.raises(error):
            read(torch.zeros(3), value)


def test_nothing_is_kept():
    x, broken = torch.zeros(3), Broken("text")
    before = sys.getrefcount(x), sys.getrefcount(broken)
    layout = make_layout(2, (0, ADDRESS, 0), (0, SIZE, 0), (1, ADDRESS, 0))
    for _ in range(100):
        layout.values(x, x)
        layout.packed(x, x)
        with pytest.raises(TypeError):
            layout.values(x, broken)  # pyright: ignore
    assert (sys.getrefcount(x), sys.getrefcount(broken)) == before


@pytest.mark.parametrize("count", [1, 3, 70])
def test_sizes_and_strides_are_those_of_torch(count: int):
    tensors = [torch.zeros(3 + i, 5, 2).permute(2, 0, 1) for i in range(count)]
    strange = torch.zeros(4, 6, dtype=torch.bits8)[:, ::2]
    tensors.append(strange)
    entries = list(itertools.product(range(count), (SIZE, STRIDE), range(3)))
    entries += [(count, STRIDE, 1), (0, ADDRESS, 0), (count, SIZE, 1)]
    layout = make_layout(count + 1, *entries)
    expected = [number for x in tensors[:-1] for number in (*x.shape, *x.stride())]
    expected += [2, tensors[0].data_ptr(), 3]
    assert layout.values(*tensors) == (tensors[0].data_ptr() & 15, *expected)
    assert layout.packed(*tensors) == struct.pack(f"={len(expected)}q", *expected)


def test_mistakes_of_the_caller():
    x = torch.zeros(3, 4)
    layout = make_layout(1, (0, SIZE, 2))
    for read in (layout.values, layout.packed):
        with pytest.raises(IndexError, match="2 axes has no axis 2"):
            read(x)
        with pytest.raises(TypeError, match="expected 1 tensors, got 2"):
            read(x, x)
    for entry in [(1, SIZE, 0), (-1, SIZE, 0), (0, 3, 0), (0, -1, 0), (0, SIZE, -1)]:
        with pytest.raises(ValueError, match="no such"):
            make_layout(1, entry)
    for entry in [(0, SIZE), [0, SIZE, 0], ("0", SIZE, 0)]:
        with pytest.raises(TypeError):
            make_layout(1, entry)  # pyright: ignore


def test_a_plan_reads_what_parameters_name():
    parameters = [
        tensor("x"),
        scalar("n", "i64", "xs[1].size(0)"),
        tensor("y", source="xs[1]"),
        scalar("m", "i64", "x.stride(12)"),
        scalar("k", "i64", "z.size(0)"),
        scalar("alpha", "f32"),
        scalar("l", "i64", "x.size(0) + 1"),
    ]
    plan = plan_reading(parameters)
    assert plan.tensors == (0, 2)
    assert plan.positions == (0, 1, 2, 3)
    assert plan.entries == ((0, ADDRESS, 0), (1, SIZE, 0), (1, ADDRESS, 0), (0, STRIDE, 12))
    assert plan_reading(parameters[4:]).positions == ()


def test_tensors_made_by_equal_expressions_have_addresses_of_their_own():
    made = "torch.empty((4, 37), dtype=torch.float32, device=x.device)"
    plan = plan_reading([tensor("x"), tensor("a", source=made), tensor("b", source=made)])
    assert plan.entries == ((0, ADDRESS, 0), (1, ADDRESS, 0), (2, ADDRESS, 0))
