"""Quick tests of arguments say yes only where keys are equal."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.ir.types import INT32_LIMIT
from tilesmith.jit.call_keys import (
    MAX_WRITTEN,
    compile_match,
    first_tensor,
    is_readable,
    storages_differ,
)
from tilesmith.jit.specialization_key import INT32_RANGE
from tilesmith.runtime.calls.reader import process_readers
from tilesmith.settings import Settings


@helion.kernel
def scaled(x, alpha, mode):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * alpha
    return out


BASE = torch.randn(6, 8)
TENSORS = [
    *(BASE, BASE.clone(), BASE.t(), BASE.t().contiguous(), BASE[:, ::2], BASE[1:, 1:], BASE[0]),
    *(BASE.double(), BASE.half(), BASE.to("meta"), BASE.view(6, 8, 1), BASE.view(1, 6, 8)),
    *(BASE[:1], BASE[:1].clone(), BASE[:, :1], BASE[:, :1].clone(), BASE[2:2], torch.empty(0, 8)),
    *(BASE[:1].expand(6, 8), torch.tensor(1.0), BASE[0, 0], torch.empty(6, 8, dtype=torch.int32)),
    *(torch.empty_strided((1, 8), (3, 1)), torch.empty_strided((1, 8), (8, 1))),
]
VALUES = [0, 1, 2**31, -(2**40), 0.0, 2.5, True, False, None, "a", "b", torch.float32]


MakeMatch = Callable[[Sequence[Any], Sequence[int]], Callable[..., bool]]


def make_python_match(args: Sequence[Any], written: Sequence[int]) -> Callable[..., bool]:
    return compile_match([f"a{position}" for position in range(len(args))], args, written)


def make_native_match(args: Sequence[Any], written: Sequence[int]) -> Callable[..., bool]:
    reader = process_readers().get(Path(Settings().cache_dir))
    if reader is None:
        pytest.skip(process_readers().obstacle)
    forms = reader.Forms(lambda *args: False, True, *INT32_RANGE, INT32_LIMIT)
    forms.add(tuple(args), tuple(written), True)
    return forms


@pytest.fixture(params=[make_python_match, make_native_match], ids=["python", "native"])
def make_match(request: pytest.FixtureRequest) -> MakeMatch:
    return request.param


def have_equal_keys(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return scaled.specialization_key(one) == scaled.specialization_key(other)


def test_tensors_match_exactly_where_keys_are_equal(make_match: MakeMatch):
    # Native code cannot read what has no memory, and says no.
    known = [x for x in TENSORS if make_match is make_python_match or not x.is_meta]
    for x, y in itertools.product(known, TENSORS):
        one, other = (x, 1.0, None), (y, 1.0, None)
        assert make_match(one, ())(*other) is have_equal_keys(one, other), (x, y)


def test_values_match_exactly_where_keys_are_equal(make_match: MakeMatch):
    for a, b in itertools.product(VALUES, VALUES):
        if type(a) is type(b):
            one, other = (BASE, a, None), (BASE, b, None)
            assert make_match(one, ())(*other) is have_equal_keys(one, other), (a, b)


def make_functions() -> list[Any]:
    """Each a new object of the same code, or of code that holds something."""
    number, twice = 3.0, [lambda acc: acc for _ in range(2)]
    held = [lambda acc: acc + number, lambda acc, scale=2.0: acc * scale]
    return [*twice, lambda acc: acc + 1, *held]


def test_functions_match_only_where_keys_are_equal():
    functions = make_functions()
    for f, g in itertools.product(functions, [*functions, *make_functions()]):
        one, other = (BASE, 1.0, f), (BASE, 1.0, g)
        is_plain = not (f.__closure__ or f.__defaults__)
        expected = is_plain and have_equal_keys(one, other)
        assert bool(make_python_match(one, ())(*other)) is expected
        assert is_readable(one) is is_plain


def test_only_plain_arguments_have_forms():
    assert first_tensor((float, torch.Tensor, torch.Tensor)) == 1
    assert first_tensor((torch.nn.Parameter, int)) == 0
    assert first_tensor((int, float)) is None
    assert first_tensor((torch.Tensor, type(scaled.fn))) == 0
    for kind in (list, dict, type(torch.relu), hl.constexpr):
        assert first_tensor((torch.Tensor, kind)) is None  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_shared_storage_is_seen_wherever_it_is(count: int):
    names = [f"t{position}" for position in range(count)]
    differ = eval(f"lambda {', '.join(names)}: {storages_differ(names)}")
    tensors = [torch.empty(4, 8) for _ in names]
    assert differ(*tensors)
    for one, other in itertools.permutations(range(count), 2):
        mixed = list(tensors)
        mixed[one] = tensors[other][2:, 1:]
        assert not differ(*mixed)


def test_aliases_never_match_where_they_matter(make_match: MakeMatch):
    x, y = torch.randn(8), torch.randn(8)
    matches = make_match((x, y), [0])
    assert matches(x, y)
    assert matches(y, x)
    assert not matches(x, x)
    assert not matches(x, x.view(8))


@pytest.mark.parametrize("written", [[0], [1], [0, 2], [0, 1, 2], [0, 1, 2, 3]])
def test_written_tensors_match_only_apart_from_all_others(
    make_match: MakeMatch, written: list[int]
):
    memory = torch.zeros(14)
    kinds = [((2,), (2,)), ((3,), (1,)), ((2, 2), (2, 1)), ((0,), (1,))]
    match = make_match([torch.empty_strided(*kind) for kind in kinds], written)
    apart, found = [], []
    for starts in itertools.product((0, 2, 3, 4, 5, 7), repeat=4):
        args = [memory.as_strided(*kind, start) for kind, start in zip(kinds, starts)]
        spans = [set(range(start, start + count)) for start, count in zip(starts, (3, 3, 4, 0))]
        others = [(spans[i], spans[j]) for i in written for j in range(4) if i != j]
        apart.append(all(one.isdisjoint(other) for one, other in others))
        found.append(match(*args))
    if make_match is make_native_match:
        assert found == apart
        return
    # A yes is always right; more than three written tensors must not even share storage.
    assert not any(says and not is_so for says, is_so in zip(found, apart))
    assert any(found) is (len(written) <= MAX_WRITTEN)


def test_bytes_between_the_elements_of_neighbours_do_not_matter(make_match: MakeMatch):
    memory = torch.zeros(64)
    left, right = memory[:32], memory[32:]
    match = make_match((torch.zeros(32), torch.zeros(32)), [0])
    assert match(left, right)
    assert match(right, left)
    assert not match(memory[:32], memory[31:63])
    assert not match(memory[31:63], memory[:32])
