"""Which maxima need no derivative: those that shift out of all that is stored."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from examples import attention, cross_entropy, softmax
from tilesmith.gradients.normal_form import simplify_forward
from tilesmith.gradients.shifts import find_idle_maxima

X = torch.randn(5, 7)


def count(kernel: Any, *args: Any) -> int:
    function = kernel.bind(args).specialization.default.trace.function
    return len(find_idle_maxima(simplify_forward(function)))


@helion.kernel
def stored_peak(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out, peaks = torch.empty_like(x), torch.empty([x.size(0)])
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        peak = row.amax(-1)
        peaks[tile] = peak
        powers = torch.exp(row - peak[:, None])
        out[tile, :] = powers / powers.sum(-1, keepdim=True)
    return out, peaks


@helion.kernel
def not_divided(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        out[tile, :] = torch.exp(row - row.amax(-1, keepdim=True))
    return out


@helion.kernel
def wrong_scale(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)])
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        peak = row.amax(-1)
        out[tile] = torch.log(torch.exp((row - peak[:, None]) * 2.0).sum(-1)) + peak
    return out


@helion.kernel
def right_scale(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)])
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        peak = row.amax(-1)
        out[tile] = torch.log(torch.exp((row - peak[:, None]) * 2.0).sum(-1)) + peak * 2.0
    return out


@helion.kernel
def with_a_sink(x: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)])
    for tile_m in hl.tile(x.size(0)):
        peak = hl.zeros([tile_m]) + sink[0]
        total = hl.full([tile_m], 1.0)
        for tile_n in hl.tile(x.size(1)):
            values = x[tile_m, tile_n]
            new_peak = torch.maximum(peak, values.amax(-1))
            powers = torch.exp(values - new_peak[:, None]).sum(-1)
            total = total * torch.exp(peak - new_peak) + powers
            peak = new_peak
        out[tile_m] = peak + torch.log(total)
    return out


@pytest.mark.parametrize(
    "kernel", [softmax.softmax, softmax.softmax_decomposed, right_scale], ids=lambda k: k.name
)
def test_softmax_and_logsumexp(kernel: Any) -> None:
    assert count(kernel, X) == 1


def test_running_maxima_with_what_carries_them() -> None:
    # What a turn yields, what it is handed, and what is left after the loop.
    assert count(softmax.softmax_two_pass, X) == 3
    assert count(attention.attention, *[torch.randn(2, 5, 16)] * 3) == 3


def test_losses() -> None:
    assert count(cross_entropy.cross_entropy, X, torch.tensor([0, 1, 2, 3, 4])) == 1


@pytest.mark.parametrize(
    "kernel", [stored_peak, not_divided, wrong_scale], ids=lambda kernel: kernel.name
)
def test_results_that_do_depend(kernel: Any) -> None:
    assert count(kernel, X) == 0


def test_a_maximum_that_begins_with_an_input_is_none_of_them() -> None:
    assert count(with_a_sink, X, torch.randn(1)) == 0
