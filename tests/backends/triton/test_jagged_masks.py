"""Lanes past their lengths are masked once: in the load, or before they mix, not in both."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.jagged_kernels import jagged_store, jagged_sum, padded_rows
from tilesmith import Config


@helion.kernel
def sums_of_features(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tb in hl.tile(x.size(0)):
        total = hl.zeros([tb], dtype=torch.float32)
        for tj in hl.jagged_tile(lengths[tb]):
            total = total + x[tb, tj, :].to(torch.float32).sum(2).sum(1)
        out[tb] = total
    return out


@helion.kernel
def maxima(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tb in hl.tile(x.size(0)):
        most = hl.full([tb], float("-inf"), dtype=torch.float32)
        for tj in hl.jagged_tile(lengths[tb]):
            most = torch.maximum(most, x[tb, tj].amax(1))
        out[tb] = most
    return out


def emitted(kernel: Any, *args: torch.Tensor, block: int) -> str:
    return kernel.bind(args).to_triton_code(Config(block_sizes=[block, 8]))


def flat() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(40), torch.tensor([0, 3, 3, 14, 20, 40])


def features() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(5, 13, 4, dtype=torch.float64).half(), torch.tensor([3, 0, 13, 5, 9])


@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize(
    ("kernel", "inputs", "selections"),
    [
        (jagged_sum, flat, 0),
        (sums_of_features, features, 0),
        (jagged_store, padded_rows, 0),
        # What a load leaves in its masked lanes is no neutral element of a maximum.
        (maxima, padded_rows, 1),
    ],
    ids=["sums", "features", "stores", "maxima"],
)
def test_lengths_are_compared_once(kernel: Any, inputs: Any, selections: int, block: int) -> None:
    code = emitted(kernel, *inputs(), block=block)
    inside = code[code.index(" in tl.range(") : code.index("def launch")]
    assert inside.count(" < ") == 1, code
    assert inside.count("tl.where") == selections, code
    assert not re.search(r"\bmask_tj\b", inside), code


def test_a_plain_loop_still_masks_its_range() -> None:
    code = emitted(longer_tiles, *padded_rows(), block=4)
    assert re.search(r"mask_tj = offs_tj < 13", code), code


@helion.kernel
def longer_tiles(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tb in hl.tile(x.size(0)):
        total = hl.zeros([tb], dtype=torch.float32)
        for tj in hl.tile(x.size(1)):
            below = tj.index[None, :] < lengths[tb][:, None]
            total = total + hl.load(x, [tb, tj], extra_mask=below).sum(1)
        out[tb] = total
    return out
