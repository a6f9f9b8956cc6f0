# type: ignore
"""Kernels that are methods: ``self`` is any object; what is read of it counts at every call."""

from __future__ import annotations

import dataclasses
import gc
import weakref

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc

X = torch.arange(13.0)


class Scale(torch.nn.Module):
    def __init__(self, factor=2.0, bias=None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(13))
        self.linear = torch.nn.Linear(2, 13)
        self.act = torch.nn.ReLU()
        self.factor, self.bias = factor, bias

    @helion.kernel
    def in_host_code(self, x):
        out = torch.empty_like(x)
        weight, factor, bias = self.weight, self.factor, self.bias
        for tile in hl.tile(x.size(0)):
            value = x[tile] * weight[tile] * factor
            if bias is not None:
                value = value + bias[tile]
            out[tile] = value
        return out

    @helion.kernel
    def in_device_code(self, x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            value = self.twice(x[tile] * self.weight[tile]) + self.linear.bias[tile]
            out[tile] = self.act(value)
        return out

    @helion.kernel(static_shapes=False)
    def without_tensors(self, n: int):
        out = torch.empty([n])
        for tile in hl.tile(n):
            out[tile] = self.factor
        return out

    @staticmethod
    @helion.kernel
    def doubled(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * 2
        return out

    def twice(self, value):
        return value * 2 + self.factor

    def forward(self, x):
        return self.in_host_code(x)


def expected_in_host_code(module: Scale) -> torch.Tensor:
    value = X * module.weight * module.factor
    return value if module.bias is None else value + module.bias


def expected_in_device_code(module: Scale) -> torch.Tensor:
    return torch.relu(2 * X * module.weight + module.factor + module.linear.bias)


def test_attributes_count_at_every_call() -> None:
    first, second = Scale(), Scale(3.0, X)
    for _ in range(3):
        for module in (first, second):
            assert torch.allclose(module(X), expected_in_host_code(module))
            assert torch.allclose(module.in_device_code(X), expected_in_device_code(module))
            module.factor += 1.5
            module.weight = torch.nn.Parameter(torch.rand(13))
            module.linear.bias = torch.nn.Parameter(torch.randn(13))
    first.bias, second.bias = X, None
    for module in (first, second):
        assert torch.allclose(module(X), expected_in_host_code(module))


def test_numbers_that_change_become_parameters(traces) -> None:
    module = Scale()
    for factor in (2.0, 3.0, 4.0, 5.0):
        module.factor = factor
        assert torch.allclose(module(X), expected_in_host_code(module))
    assert len(traces) <= 2


def test_methods_are_bound_without_self() -> None:
    module = Scale()
    bound = module.in_host_code.bind((X,))
    assert "= (self.weight, self.factor, self.bias)" in bound.to_triton_code()
    assert torch.allclose(bound(module, X), expected_in_host_code(module))
    assert torch.equal(module.without_tensors(3), torch.full([3], 2.0))
    assert module.in_host_code.name == "in_host_code"
    assert Scale.in_host_code(module, X).shape == X.shape


def test_kernels_that_are_not_written_in_the_class_get_no_self() -> None:
    class Holder:
        op = doubled

    assert torch.equal(Holder().op(X), X * 2)
    assert torch.equal(Scale().doubled(X), X * 2)


@helion.kernel
def doubled(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


@dataclasses.dataclass
class Options:
    factor: float

    def __post_init__(self) -> None:
        self.shift = self.factor + 1

    @helion.kernel
    def apply(self, x):
        x = x + 0
        x += self.shift
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * self.factor
        return out


def test_self_may_be_a_dataclass_with_more_than_its_fields() -> None:
    for factor in (2.0, 3.0):
        assert torch.equal(Options(factor).apply(X), (X + factor + 1) * factor)


def test_an_object_is_not_kept_alive() -> None:
    module = Scale()
    module(X)
    bound = module.in_host_code.bind((X,))
    gone = weakref.ref(module)
    del module
    gc.collect()
    assert gone() is None
    other = Scale(5.0)
    bound.set_config(helion.Config(block_sizes=[4]))
    assert torch.allclose(other(X), expected_in_host_code(other))


def test_arbitrary_objects_are_no_other_arguments() -> None:
    with pytest.raises(exc.UnsupportedArgumentType):
        Scale().in_host_code(Scale())
