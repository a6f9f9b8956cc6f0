"""Tensors that torch or others have made something of: subclasses, modes, arrays, shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.dlpack import to_dlpack

import tilesmith as helion
from examples.matmul import matmul
from examples.ports.adamw import adamw
from examples.rms_norm import rms_norm
from tests.operators import graph_kernels as kernels


class Named(torch.Tensor):
    """A subclass that adds nothing."""


class Pair(torch.Tensor):
    """Two tensors of one form; every operator is applied to both."""

    first: torch.Tensor
    second: torch.Tensor

    @staticmethod
    def __new__(cls, first: torch.Tensor, second: torch.Tensor) -> Pair:
        form: dict[str, Any] = {"dtype": first.dtype, "strides": first.stride()}
        made: Any = torch.Tensor._make_wrapper_subclass(cls, first.shape, **form)
        made.first, made.second = first, second
        return made

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> torch.Tensor:
        results = [
            func(*pytree.tree_map(lambda t, n=name: getattr(t, n, t), args), **(kwargs or {}))
            for name in ("first", "second")
        ]
        return cls(*results)


class Unwilling(Pair):
    """Knows no operator of ours."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("kind", [Named, torch.nn.Buffer, torch.nn.Parameter])
def test_subclasses_with_memory_are_their_memory(kind: Any, is_warm: bool):
    kernel = kernels.fresh(kernels.scale)
    x = torch.randn(8)
    given = x.as_subclass(Named) if kind is Named else kind(x)
    if is_warm:
        kernel(given)
    found = kernel(given)
    torch.testing.assert_close(found.detach().as_subclass(torch.Tensor), x * 2)
    assert type(found) is (Named if kind is Named else torch.Tensor)
    assert found.requires_grad is (kind is torch.nn.Parameter)


@pytest.mark.parametrize("is_warm", [False, True])
def test_wrappers_are_given_the_operator(is_warm: bool):
    kernel = kernels.fresh(kernels.scale)
    x = torch.randn(8)
    if is_warm:
        kernel(x)
    found = kernel(Pair(x, x + 1), 3.0)
    assert isinstance(found, Pair)
    torch.testing.assert_close(found.first, x * 3)
    torch.testing.assert_close(found.second, (x + 1) * 3)
    with pytest.raises(helion.exc.SubclassWithoutKernel, match="class `Unwilling` do not know"):
        kernel(Unwilling(x, x))


def test_dispatch_modes_see_one_operator():
    seen: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    kernel = kernels.fresh(kernels.scale)
    x = torch.randn(8)
    for _ in range(2):
        kernel(x)
        with Watch():
            torch.testing.assert_close(kernel(x), x * 2)
    assert sum(name.startswith("tilesmith.scale") for name in seen) == 2
    assert not any("empty" in name for name in seen)


def test_function_modes_see_what_host_code_calls():
    seen: list[str] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x = torch.randn(8)
    with Watch():
        found = kernels.fresh(kernels.scale)(x)
    torch.testing.assert_close(found, x * 2)
    assert "empty_like" in seen


@pytest.mark.parametrize(
    ("make", "fix"),
    [
        (lambda x: x.numpy(), r"torch.from_numpy\(x\)"),
        (to_dlpack, r"torch.from_dlpack\(x\)"),
        (lambda x: np.ma.masked_array(x.numpy()), r"torch.from_dlpack\(x\)"),
    ],
    ids=["numpy", "capsule", "dlpack"],
)
def test_arrays_are_refused_with_their_conversion(make: Any, fix: str):
    with pytest.raises(helion.exc.UnsupportedArgumentType, match=fix):
        kernels.fresh(kernels.scale)(make(torch.randn(8)))


def test_nested_tensors_are_refused_with_their_parts():
    nested = torch.nested.nested_tensor([torch.randn(3), torch.randn(5)], layout=torch.jagged)
    with pytest.raises(helion.exc.UnsupportedArgumentType, match=r"x.values\(\) and x.offsets\(\)"):
        kernels.fresh(kernels.scale)(nested)


@pytest.fixture(scope="module")
def mesh() -> Iterator[Any]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def spread(tensor: torch.Tensor, mesh: Any, placement: Any) -> Any:
    return DTensor.from_local(tensor, mesh, [placement])


def test_rows_of_shards_and_their_gradients(mesh: Any):
    x, weight = torch.randn(6, 8), torch.randn(8)
    rows = spread(x, mesh, Shard(0)).requires_grad_()
    whole = spread(weight, mesh, Replicate()).requires_grad_()
    out, inverse = cast("tuple[DTensor, DTensor]", rms_norm(rows, whole))
    assert isinstance(out, DTensor)
    assert out.placements == inverse.placements == (Shard(0),)
    torch.testing.assert_close(out.to_local(), rms_norm(x, weight)[0])
    out.sum().backward()
    x.requires_grad_(), weight.requires_grad_()
    rms_norm(x, weight)[0].sum().backward()
    torch.testing.assert_close(rows.grad.to_local(), x.grad)
    torch.testing.assert_close(whole.grad.full_tensor(), weight.grad)
    assert rows.grad.placements == (Shard(0),)
    assert whole.grad.placements == (Partial(),)  # each rank has what its rows add to it


def test_columns_of_a_product(mesh: Any):
    x, y = torch.randn(6, 8), torch.randn(8, 5)
    out: Any = matmul(spread(x, mesh, Replicate()), spread(y, mesh, Shard(1)))
    assert out.placements == (Shard(1),)
    torch.testing.assert_close(out.to_local(), x @ y)
    again: Any = matmul(spread(x, mesh, Replicate()), spread(y, mesh, Replicate()))
    assert again.placements == (Replicate(),)


def test_shards_are_updated_in_place(mesh: Any):
    state = [torch.rand(6, 4) for _ in range(4)]
    numbers = (1, 1e-2, (0.9, 0.99), 1e-8, 0.1)
    given = [spread(t.clone(), mesh, Shard(0)) for t in state]
    update: Any = adamw
    found = update(*given, *numbers)
    wanted = update(*state, *numbers)
    assert found[0] is given[0]
    for shard, whole in zip(found, wanted):
        torch.testing.assert_close(shard.to_local(), whole)


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        (Shard(1), Shard(0), "`k`, which follows from the sharded size, is used"),
        (Partial(), Replicate(), "an argument is a Partial sum"),
        (Shard(0), None, "DTensors and plain tensors"),
    ],
    ids=["contracted", "partial", "plain"],
)
def test_what_is_wrong_on_shards_is_refused(mesh: Any, first: Any, second: Any, problem: str):
    x, y = torch.randn(6, 8), torch.randn(8, 5)
    args = spread(x, mesh, first), y if second is None else spread(y, mesh, second)
    with pytest.raises(helion.exc.NotOnShards, match=problem):
        matmul(*args)
