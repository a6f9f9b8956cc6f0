"""Quick tests of arguments say yes only where keys are equal."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.ir.types import INT32_LIMIT
from tilesmith.jit.call_keys import first_tensor
from tilesmith.jit.forms.matches import MAX_WRITTEN, compile_match, storages_differ
from tilesmith.jit.forms.readable import are_readable, is_readable
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


MakeMatch = Callable[..., Callable[..., bool]]


def make_python_match(
    args: Sequence[Any], written: Sequence[int], constants: Sequence[int] = ()
) -> Callable[..., bool]:
    names = [f"a{position}" for position in range(len(args))]
    return compile_match(names, args, written, constants)


def make_native_match(
    args: Sequence[Any], written: Sequence[int], constants: Sequence[int] = ()
) -> Callable[..., bool]:
    reader = process_readers().get(Path(Settings().cache_dir))
    if reader is None:
        pytest.skip(process_readers().obstacle)
    forms = reader.Forms(lambda *args: False, True, *INT32_RANGE, INT32_LIMIT)
    forms.add(tuple(args), tuple(written), True, False, tuple(constants))
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


@helion.kernel
def by_constant(x, alpha: hl.constexpr):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] if alpha is None else x[tile] * 2
    return out


def test_constants_match_exactly_where_keys_are_equal(make_match: MakeMatch):
    values = [*VALUES, -0.0, 7, 2**31 + 1, 1e-300, float("inf"), "a b", torch.float16]
    for a, b in itertools.product(values, values):
        if type(a) is type(b):
            keys = [by_constant.specialization_key((BASE, value)) for value in (a, b)]
            is_same = keys[0] == keys[1]
            assert bool(make_match((BASE, a), (), (1,))(BASE, b)) is is_same, (a, b)


def test_wrapped_constants_match_where_keys_are_equal():
    for a, b in itertools.product(VALUES, VALUES):
        one, other = ((BASE, hl.constexpr(value), None) for value in (a, b))  # pyright: ignore
        assert are_readable(one)
        is_same = have_equal_keys(one, other)
        assert make_native_match(one, (), (1,))(*other) is is_same, (a, b)


def make_closure(held: Any, other: Any = None) -> Any:
    return lambda acc: (acc, held, other)


def test_closures_match_exactly_where_keys_are_equal():
    """Numbers that a function holds are constants; tensors count by their form."""
    held = [BASE, BASE.clone(), BASE[:3], BASE.t(), BASE.half(), 1, 2, True, 0.0, -0.0, 1.5, None]
    for a, b in itertools.product(held, held):
        one, other = (BASE, 1.0, make_closure(a)), (BASE, 1.0, make_closure(b))
        assert are_readable(one)
        assert make_native_match(one, ())(*other) is have_equal_keys(one, other), (a, b)
        deeper = (BASE, 1.0, make_closure(a, BASE))
        assert make_native_match(one, ())(*deeper) is False


def test_what_closures_may_hide_is_left_to_keys():
    number = 2.0

    def inner(acc: Any) -> Any:
        return acc * number

    def with_default(acc: Any, scale: Any = BASE) -> Any:
        return acc * scale * number

    for hiding in (make_closure(inner), make_closure([1]), make_closure(object()), with_default):
        assert not are_readable((BASE, hiding))
    assert not are_readable((BASE, [make_closure(BASE)])), "closures in containers"


def test_closures_do_not_live_on_in_forms():
    held = torch.zeros(4)
    match = make_native_match((make_closure(held),), ())
    watched = weakref.ref(held)
    assert match(make_closure(held)) is True
    del held
    gc.collect()
    assert watched() is None
    assert match(make_closure(torch.ones(4))) is True


class Pair(NamedTuple):
    left: Any
    right: Any


SWAPPED: Any = type("Swapped", (Pair,), {"left": Pair.right, "right": Pair.left})


def test_named_tuples_match_exactly_where_keys_are_equal():
    items = [(BASE, 1), (BASE.clone(), 2), (BASE.t(), 1), (BASE, 2**40), (BASE, None), (1, BASE)]
    made = [*(Pair(*pair) for pair in items), *items]
    for a, b in itertools.product(made, made):
        one, other = (BASE, 1.0, a), (BASE, 1.0, b)
        assert are_readable(one)
        assert make_native_match(one, ())(*other) is have_equal_keys(one, other), (a, b)
    assert not is_readable(SWAPPED(BASE, 1)), "its names are not in the order of its items"
    assert not is_readable(torch.Size([1, 2]))


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
