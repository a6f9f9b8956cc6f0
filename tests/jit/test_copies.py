# type: ignore
"""Copies of kernels, and kernels and modules that are pickled."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc

X = torch.arange(13.0)


@helion.kernel(config=helion.Config(block_sizes=[8]), static_shapes=False)
def doubled(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


def plain(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 3
    return out


tripled = helion.kernel(plain, config=helion.Config(block_sizes=[4]))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(13))
        self.op = doubled

    @helion.kernel
    def scale(self, x):
        out = torch.empty_like(x)
        weight = self.weight
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * weight[tile]
        return out

    def forward(self, x):
        return self.op(self.scale(x))


@pytest.mark.parametrize("make_copy", [copy.copy, copy.deepcopy])
def test_a_copy_has_the_same_settings_and_nothing_bound(make_copy) -> None:
    doubled(X)
    other = make_copy(doubled)
    assert other is not doubled
    assert other.settings == doubled.settings
    assert other.configs == doubled.configs
    other.settings.static_shapes = True
    assert doubled.settings.static_shapes is False
    assert torch.equal(other(X), X * 2)
    assert other.bind((X,)) is not doubled.bind((X,))


def test_kernels_are_pickled_by_name() -> None:
    doubled(X)
    for kernel in (doubled, tripled, Model.scale):
        assert pickle.loads(pickle.dumps(kernel)) is kernel


def test_a_kernel_without_a_name_is_pickled_as_its_function() -> None:
    nameless = helion.kernel(plain, config=helion.Config(block_sizes=[2]), static_shapes=False)
    again = pickle.loads(pickle.dumps(nameless))
    assert again.configs == [helion.Config(block_sizes=[2])]
    assert again.settings == nameless.settings
    assert torch.equal(again(X), X * 3)


def test_local_kernels_say_why_they_are_not_pickled() -> None:
    @helion.kernel
    def local(x):
        return x

    with pytest.raises(exc.KernelNotPicklable, match=r"<locals>.local` does not lead to it"):
        pickle.dumps(local)
    with pytest.raises(pickle.PicklingError):
        pickle.dumps([local])


def test_modules_that_hold_kernels() -> None:
    model = Model()
    expected = X * model.weight * 2
    assert torch.allclose(model(X), expected)
    assert torch.allclose(copy.deepcopy(model)(X), expected)
    assert torch.allclose(pickle.loads(pickle.dumps(model))(X), expected)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert torch.allclose(torch.load(file, weights_only=False)(X), expected)
    method = pickle.loads(pickle.dumps(model.scale))
    assert torch.allclose(method(X), X * model.weight)


def test_bound_kernels_are_not_pickled() -> None:
    bound = doubled.bind((X,))
    with pytest.raises(exc.BoundKernelNotPicklable, match="bind it again"):
        pickle.dumps(bound)
    assert copy.deepcopy({"bound": bound})["bound"] is bound


def test_settings_of_a_kernel_are_pickled_as_values() -> None:
    again = pickle.loads(pickle.dumps(doubled.settings))
    assert type(again) is helion.Settings
    assert again == doubled.settings
