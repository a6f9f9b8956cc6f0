"""Dual numbers: kernels have no tangents, and say so wherever torch would lose them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

import tilesmith as helion
from tests.operators.graph_kernels import scale
from tilesmith.operators.inside import FORWARD_MODE

# With torch 2.15 what make_dual imports warns.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:FutureWarning")


def new_kernel() -> Any:
    return helion.kernel(scale)


def call_dual(call: Callable[..., Any], x: torch.Tensor) -> Any:
    with forward_ad.dual_level():
        return call(forward_ad.make_dual(x, torch.ones_like(x)), 3.0)


def in_eager(kernel: Any) -> Callable[..., Any]:
    return kernel


def without_native_code(kernel: Any) -> Callable[..., Any]:
    kernel(torch.ones(4), 3.0)
    return kernel._finder._run_by_types


def as_operator(kernel: Any) -> Callable[..., Any]:
    return kernel.operator((torch.ones(4), 3.0)).definition


def in_a_graph(backend: str) -> Callable[[Any], Callable[..., Any]]:
    return lambda kernel: torch.compile(kernel, backend=backend, fullgraph=True)


WAYS = {
    "eager": in_eager,
    "no native code": without_native_code,
    "operator": as_operator,
    "graph of Dynamo": in_a_graph("eager"),
    "graph of AOTAutograd": in_a_graph("aot_eager"),
}


@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("way", WAYS)
def test_tangents_are_refused(way: str, is_warm: bool):
    torch.compiler.reset()
    call = WAYS[way](new_kernel())
    x = torch.randn(4)
    if is_warm:
        # Just before: what a thread has heard a moment ago must not count.
        assert call(x, 3.0).equal(x * 3)
    # From 2.15 on Dynamo refuses such tensors itself.
    refusals = (
        helion.exc.NoForwardMode,
        *([RuntimeError] if "Dynamo" in way or "AOT" in way else []),
    )
    with pytest.raises(refusals, match="tangent"):
        call_dual(call, x)
    assert call(x, 3.0).equal(x * 3)


def test_tensors_without_a_tangent_are_taken():
    kernel, x = new_kernel(), torch.randn(4)
    recorded = x.clone().requires_grad_()
    with forward_ad.dual_level():
        forward_ad.make_dual(x, torch.ones_like(x))
        for _ in range(2):
            assert kernel(x, 3.0).equal(x * 3)
            assert kernel.operator((x, 3.0)).definition(x, 3.0).equal(x * 3)
            (grad,) = torch.autograd.grad(kernel(recorded, 3.0).sum(), recorded)
            assert grad.equal(torch.full((4,), 3.0))


@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("transform", ["jvp", "jacfwd"])
def test_transforms_that_go_forwards_are_refused(transform: str, is_recorded: bool):
    kernel, x = new_kernel(), torch.randn(4).requires_grad_(is_recorded)

    def call(x: torch.Tensor) -> torch.Tensor:
        return kernel(x, 3.0)

    def transformed() -> Any:
        if transform == "jvp":
            return torch.func.jvp(call, (x,), (torch.ones_like(x),))
        return torch.func.jacfwd(call)(x)

    with pytest.raises(helion.exc.NoForwardMode):
        transformed()


def test_the_place_where_torch_notes_its_levels_is_there():
    # By a private name: where it has gone, tangents are lost, and this must be known.
    names, level, none = FORWARD_MODE
    assert names[level] is none
    with forward_ad.dual_level():
        assert names[level] is not none
