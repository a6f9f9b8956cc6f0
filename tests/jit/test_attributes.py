"""Attributes of objects and classes that device code reads: seen at every call, however reached."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

import tilesmith as helion
import tilesmith.exc as errors
import tilesmith.language as hl

X = torch.arange(1, 14, dtype=torch.float32)


class Options:
    factor = 2.0


class Derived(Options):
    pass


class Inner:
    def __init__(self) -> None:
        self.factor = 2.0


class Nested:
    __slots__ = ("inner",)

    def __init__(self) -> None:
        self.inner = Inner()

    def times(self, value):
        return value * self.inner.factor

    @property
    def factor(self) -> float:
        return self.inner.factor


class Called:
    def __init__(self) -> None:
        self.factor = 2.0

    def __call__(self, value):
        return value * self.factor

    def __matmul__(self, value):
        return value * self.factor


@dataclass(frozen=True)
class Scaled:
    offset: float
    kind: ClassVar[type] = Options

    def apply(self, value):
        return value * self.kind.factor + self.offset


class Module(torch.nn.Module):
    weight: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.register_buffer("weight", torch.full((13,), 2.0))

    def forward(self, value):
        return value * self.inner.factor


INSTANCE = Inner()
NESTED = Nested()
LISTED = [Inner(), Inner()]
BAG = SimpleNamespace(inner=argparse.Namespace(factor=2.0))
CALLED = Called()
SCALED = Scaled(0.0)
MODULE = Module()
BOUND = NESTED.times
PARTIAL = functools.partial(NESTED.times)


def of_class(value):
    return value * Options.factor


def of_base(value):
    return value * Derived.factor


def of_instance(value):
    return value * INSTANCE.factor


def of_chain(value):
    return value * NESTED.inner.factor


def of_property(value):
    return value * NESTED.factor


def of_method(value):
    return NESTED.times(value)


def of_bound_method(value):
    return BOUND(value)


def of_partial(value):
    return PARTIAL(value)


def of_item(value):
    return value * LISTED[1].factor


def of_local_name(value):
    options = NESTED.inner
    return value * options.factor


def of_argument(value):
    def inner(options):
        return value * options.factor

    return inner(INSTANCE)


def of_getattr(value):
    return value * getattr(INSTANCE, "factor")  # noqa: B009


def of_bag(value):
    return value * BAG.inner.factor


def of_call(value):
    return CALLED(value)


def of_operator(value):
    return CALLED @ value


def of_dataclass(value):
    return SCALED.apply(value)


def of_module(value):
    return MODULE(value)


def of_type(value):
    return value * type(DERIVED).factor


DERIVED = Derived()


def closed_over() -> Callable[..., Any]:
    held = NESTED
    return lambda value: value * held.inner.factor


FACTOR = 2.0


class Making:
    def __init__(self) -> None:
        self.factor = FACTOR

    def __call__(self, value):
        return value * self.factor


def of_made_object(value):
    return Making()(value)


def of_condition(value):
    if Options.factor > 2.5:
        return value * 3
    return value * 2


READERS = [
    *(of_class, of_base, of_instance, of_chain, of_property, of_method, of_bound_method),
    *(of_partial, of_item, of_local_name, of_argument, of_getattr, of_bag, of_call, of_operator),
    *(of_dataclass, of_module, of_type, closed_over(), of_condition, of_made_object),
]


def set_all(factor: float) -> None:
    globals()["FACTOR"] = Options.factor = factor
    for place in (INSTANCE, NESTED.inner, LISTED[1], BAG.inner, CALLED, MODULE.inner):
        place.factor = factor


@pytest.fixture(autouse=True)
def _set_back():
    yield
    set_all(2.0)


@helion.kernel
def applies(x, reader):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = reader(x[t])
    return out


def make_kernel(reader: Callable[..., Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    applies.reset()
    return lambda x: applies(x, reader)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__.strip("<>"))
def test_a_changed_attribute_is_seen(reader, traces: list[str]):
    kernel = make_kernel(reader)
    for factor in (2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 2.0, 3.0):
        set_all(factor)
        assert torch.equal(kernel(X), X * factor), factor
    assert len(traces) == 2, "one for each value"


@helion.kernel
def reads_in_its_loop(x, kind: hl.constexpr):
    out = torch.empty_like(x)
    local = Derived
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * NESTED.inner.factor + local.factor + kind.factor
    return out


def test_what_the_loop_itself_reads_is_seen():
    for factor in (2.0, 2.0, 3.0, 3.0, 2.0):
        set_all(factor)
        assert torch.equal(reads_in_its_loop(X, Derived), X * factor + 2 * factor)


@helion.kernel
def reads_one_class(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * Options.factor
    return out


def test_an_attribute_is_seen_by_calls_that_need_no_host_code():
    for factor in (2.0, 3.0):
        set_all(factor)
        for _ in range(5):
            assert torch.equal(reads_one_class(X), X * factor)
    set_all(2.0)
    assert torch.equal(reads_one_class(X), X * 2)


def test_another_object_is_seen(monkeypatch):
    kernel = make_kernel(of_chain)
    assert torch.equal(kernel(X), X * 2)
    other = Nested()
    other.inner.factor = 5.0
    monkeypatch.setitem(globals(), "NESTED", other)
    assert torch.equal(kernel(X), X * 5)
    monkeypatch.setattr(other, "inner", Inner())
    assert torch.equal(kernel(X), X * 2)


def test_another_method_is_seen(monkeypatch):
    kernel = make_kernel(of_method)
    assert torch.equal(kernel(X), X * 2)
    monkeypatch.setattr(Nested, "times", lambda self, value: value - self.inner.factor)
    assert torch.equal(kernel(X), X - 2)


def test_an_attribute_that_is_gone_is_named(monkeypatch):
    kernel = make_kernel(of_instance)
    assert torch.equal(kernel(X), X * 2)
    monkeypatch.delattr(INSTANCE, "factor")
    with pytest.raises(errors.BaseError, match="factor"):
        kernel(X)


@helion.kernel
def reads_a_buffer(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * MODULE.weight[t]
    return out


def test_another_tensor_of_an_object_is_seen(monkeypatch, traces: list[str]):
    assert torch.equal(reads_a_buffer(X), X * 2)
    monkeypatch.setitem(MODULE._buffers, "weight", X.clone())
    assert torch.equal(reads_a_buffer(X), X * X)
    MODULE.weight.mul_(2)
    assert torch.equal(reads_a_buffer(X), X * X * 2)
    assert len(traces) == 2, "one for each tensor"
    monkeypatch.setitem(MODULE._buffers, "weight", X.double())
    assert torch.equal(reads_a_buffer(X), X * X)


def test_two_names_of_one_function_may_come_to_differ():
    def make(factor: float) -> Callable[..., Any]:
        return lambda value: value * factor

    first = make(2.0)
    names = {"first": first, "second": first}

    def both(value):
        return names["first"](value) + names["second"](value)

    kernel = make_kernel(both)
    assert torch.equal(kernel(X), X * 4)
    names["second"] = make(3.0)
    assert torch.equal(kernel(X), X * 5)


def test_objects_without_end_end(monkeypatch):
    class Endless:
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            made = Endless()
            setattr(self, name, made)
            return made

    endless: Any = Endless()
    endless.factor = 2.0
    monkeypatch.setitem(globals(), "INSTANCE", endless)
    kernel = make_kernel(of_instance)
    assert torch.equal(kernel(X), X * 2)
    endless.factor = 3.0
    assert torch.equal(kernel(X), X * 3)
