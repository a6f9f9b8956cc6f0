"""``aot_kernel``: one kernel for all shapes."""

from __future__ import annotations

import torch

import tilesmith
import tilesmith.language as hl


@tilesmith.aot_kernel(batched=[[0, None]])
def doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 2
    return out


@tilesmith.aot_kernel
def plain(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + 1
    return out


def test_one_kernel_serves_all_shapes():
    first, second = torch.randn(5, 7), torch.randn(20, 9)
    assert torch.equal(doubled(first), first * 2)
    assert doubled.bind((first,)) is doubled.bind((second,))
    assert torch.equal(doubled(second), second * 2)
    assert torch.equal(plain(first), first + 1)
    assert not plain.settings.static_shapes


def test_settings_may_say_otherwise():
    kernel = tilesmith.aot_kernel(plain.fn, static_shapes=True)
    assert kernel.settings.static_shapes
