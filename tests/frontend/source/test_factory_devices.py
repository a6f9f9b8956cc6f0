"""Tensors that host code makes without naming a device are on the kernel's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.frontend.source.split_kernel import FACTORIES


@helion.kernel
def everywhere(x: torch.Tensor, options: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    out = torch.empty([x.size(0)])
    more = [torch.zeros(2) for _ in range(2)]
    on_host = torch.ones([3], device="cpu")
    unpacked = torch.full([3], 1.0, **options)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * 2
    after = torch.arange(4)
    return out, more[0], on_host, unpacked, after


def test_calls_without_a_device_get_the_launch_point_s() -> None:
    host = everywhere.definition.split.host_function()

    def launch(*captured: Any) -> None:
        assert captured

    launch.device = torch.device("meta")  # type: ignore[attr-defined]
    found = host(launch, torch.zeros(5), {"device": "cpu"})
    kinds = [tensor.device.type for tensor in found]
    assert kinds == ["meta", "meta", "cpu", "cpu", "meta"]


def test_an_ordinary_call_still_works() -> None:
    x = torch.randn(5)
    out, *others = everywhere(x, {})
    assert torch.equal(out, x * 2)
    assert all(tensor.device.type == "cpu" for tensor in others)


def test_saved_code_names_the_device_of_an_argument() -> None:
    bound = everywhere.bind((torch.zeros(5), {}), target="cuda:90")
    text = bound.to_triton_code(bound.default_config())
    assert "torch.empty([x.size(0)], device=x.device)" in text
    assert "torch.ones([3], device='cpu')" in text


@helion.kernel
def early(x: torch.Tensor, is_done: bool) -> torch.Tensor:
    out = torch.zeros([x.size(0)])
    if is_done:
        return out
    for t in hl.tile(x.size(0)):
        out[t] = x[t]
    return out


def test_a_kernel_that_returns_early_knows_its_device() -> None:
    assert torch.equal(early(torch.ones(3), True), torch.zeros(3))


@pytest.mark.parametrize("name", sorted(FACTORIES))
def test_every_factory_takes_a_device(name: str) -> None:
    assert "device" in (getattr(torch, name).__doc__ or "")
