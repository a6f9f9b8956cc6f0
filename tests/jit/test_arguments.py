# type: ignore
"""Arguments beyond tensors by position: keywords, ``*rest``, Enum members, partials, numpy."""

from __future__ import annotations

import dataclasses
import enum
import functools

import numpy as np
import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc

X, Y, Z = (torch.arange(13.0) + n for n in range(3))
BACKENDS = pytest.mark.parametrize("backend", ["auto", "reference"])


@helion.kernel
def scaled(x, /, *, factor=2.0, shift):
    out = torch.empty_like(x)
    for tile in hl.tile(x.shape):
        out[tile] = x[tile] * factor + shift
    return out


@helion.kernel
def total(first, *rest, weight=1.0):
    out = torch.empty_like(first)
    for tile in hl.tile(first.shape):
        sum_of_all = first[tile]
        for other in rest:
            sum_of_all = sum_of_all + weight * other[tile]
        out[tile] = sum_of_all
    return out


@BACKENDS
@pytest.mark.parametrize("static_shapes", [True, False])
def test_keyword_only_parameters(backend, static_shapes) -> None:
    kernel = helion.kernel(scaled.fn, backend=backend, static_shapes=static_shapes)
    assert torch.equal(kernel(X, shift=1.0), X * 2 + 1)
    assert torch.equal(kernel(X, shift=3.0, factor=4.0), X * 4 + 3)
    bound = kernel.bind(kernel.normalize_args(X, shift=1.0))
    assert torch.equal(bound(X, shift=5.0), X * 2 + 5)
    assert "def scaled(x, /, *, factor=2.0, shift)" in bound.to_triton_code()


def test_what_does_not_fit_a_signature_with_keywords() -> None:
    for args, keywords in [((X,), {}), ((X, 1.0), {}), ((X,), {"shift": 1.0, "other": 2})]:
        with pytest.raises(exc.WrongArguments, match="factor"):
            scaled(*args, **keywords)


@BACKENDS
@pytest.mark.parametrize("static_shapes", [True, False])
def test_any_number_of_positional_arguments(backend, static_shapes) -> None:
    kernel = helion.kernel(total.fn, backend=backend, static_shapes=static_shapes)
    for _ in range(2):
        assert torch.equal(kernel(X), X)
        assert torch.equal(kernel(X, Y), X + Y)
        assert torch.equal(kernel(X, Y, Z, weight=2.0), X + 2 * (Y + Z))
    bound = kernel.bind((X, Y, Z))
    assert torch.equal(bound(X, Y, Z), X + Y + Z)
    assert kernel.bind(kernel.normalize_args(X, Y, Z)) is bound
    assert "def total(first, *rest, weight=1.0)" in bound.to_triton_code()


@helion.kernel
def summed_numbers(x, *numbers):
    out = torch.empty_like(x)
    for tile in hl.tile(x.shape):
        value = x[tile]
        for number in numbers:
            value = value + number
        out[tile] = value
    return out


def test_numbers_in_star_arguments_are_read_at_every_call(traces) -> None:
    for number in (1.0, 2.0, 3.0):
        assert torch.equal(summed_numbers(X, 1, number), X + 1 + number)
    assert len(traces) == 1


class Color(enum.Enum):
    RED = 1
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Size(tuple, enum.Enum):
    SMALL = (1, 2)


@helion.kernel
def colored(x, color):
    out = torch.empty_like(x)
    for tile in hl.tile(x.shape):
        if color is Color.RED:
            out[tile] = x[tile] + 1
        elif color == Color.GREEN:
            out[tile] = x[tile] + 2
        elif color is Size.SMALL:
            out[tile] = x[tile] + 3
        else:
            out[tile] = x[tile] * color
    return out


@BACKENDS
def test_enum_members_are_constants(backend, traces) -> None:
    kernel = helion.kernel(colored.fn, backend=backend)
    expected = {
        Color.RED: X + 1, Color.GREEN: X + 2, Size.SMALL: X + 3, Level.LOW: X, Level.HIGH: X * 10,
    }  # fmt: skip
    for _ in range(2):
        for member, result in expected.items():
            assert torch.equal(kernel(X, member), result)
    assert len(traces) == len(expected)


@helion.kernel
def applied(x, function):
    out = torch.empty_like(x)
    for tile in hl.tile(x.shape):
        out[tile] = function(x[tile])
    return out


def affine(a, b, value):
    return a * value + b


def with_table(value, table, factor=1.0):
    return value + factor * table[0]


@BACKENDS
def test_partials_are_traced_like_their_function(backend) -> None:
    kernel = helion.kernel(applied.fn, backend=backend)
    for a, b in [(2.0, 3.0), (4.0, 3.0), (2.0, 3.0)]:
        assert torch.equal(kernel(X, functools.partial(affine, a, b)), X * a + b)
    assert torch.equal(kernel(X, functools.partial(torch.add, 2.0)), X + 2)
    assert torch.equal(kernel(X, functools.partial(lambda value: -value)), -X)


@pytest.mark.parametrize("static_shapes", [True, False])
def test_tensors_bound_to_a_partial_are_read_at_every_call(static_shapes, traces) -> None:
    kernel = helion.kernel(applied.fn, static_shapes=static_shapes)
    for table in (torch.tensor([5.0, 0.0]), torch.tensor([7.0, 1.0])):
        bound_to = functools.partial(with_table, table=table, factor=2.0)
        assert torch.equal(kernel(X, bound_to), X + 2 * table[0])
        table[0] = 9.0
        assert torch.equal(kernel(X, bound_to), X + 18)
    assert len(traces) == 1


OFFSET = functools.partial(affine, 1.0, 5.0)


@helion.kernel
def with_global_partial(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.shape):
        out[tile] = OFFSET(x[tile])
    return out


def test_a_partial_in_a_module_is_guarded(monkeypatch) -> None:
    assert torch.equal(with_global_partial(X), X + 5)
    monkeypatch.setitem(globals(), "OFFSET", functools.partial(affine, 3.0, 5.0))
    assert torch.equal(with_global_partial(X), X * 3 + 5)


@helion.kernel
def multiplied(x, factor):
    out = torch.empty_like(x)
    for tile in hl.tile(x.shape):
        out[tile] = x[tile] * factor
    return out


@BACKENDS
def test_numbers_of_numpy_are_like_those_of_python(backend, traces) -> None:
    kernel = helion.kernel(multiplied.fn, backend=backend)
    floats = [np.float32(2), np.float64(1.5), np.float16(0.5), 3.0]
    for number in [*floats, np.int64(3), np.int8(-2), 4]:
        assert torch.equal(kernel(X, number), X * float(number))
    assert len(traces) == 2, "floats and integers"
    assert torch.equal(kernel(X, np.bool_(True)), X)
    bound = kernel.bind((X, np.float32(2)))
    assert torch.equal(bound(X, np.float32(4)), X * 4)


@helion.kernel
def weighted(x, weights):
    factor = np.float32(weights[1])
    out = torch.empty_like(x)
    for tile in hl.tile(x.shape):
        out[tile] = x[tile] * weights[0] * factor
    return out


def test_numbers_of_numpy_in_containers_and_in_host_code() -> None:
    for a, b in [(2.0, 3.0), (4.0, 5.0), (6.0, 7.0)]:
        assert torch.equal(weighted(X, (np.float32(a), np.float64(b))), X * a * b)
        assert torch.equal(weighted(X, [a, b]), X * a * b)


@dataclasses.dataclass
class Weights:
    first: float
    second: float


@helion.kernel
def weighted_by_fields(x, weights):
    out = torch.empty_like(x)
    for tile in hl.tile(x.shape):
        out[tile] = x[tile] * weights.first * weights.second
    return out


def test_numbers_of_numpy_in_dataclasses(traces) -> None:
    for a, b in [(2.0, 3.0), (4.0, 5.0)]:
        assert torch.equal(weighted_by_fields(X, Weights(np.float32(a), np.float16(b))), X * a * b)
        assert torch.equal(weighted_by_fields(X, Weights(a, b)), X * a * b)
    assert len(traces) == 1
