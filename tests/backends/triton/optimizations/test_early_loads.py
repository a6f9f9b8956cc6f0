"""Loads that are begun before stores which they do not meet."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

HEADS = 6
CONFIG = helion.Config(block_sizes=[64], num_warps=4)


@helion.kernel(static_shapes=True, config=CONFIG)
def double_heads(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(1)):
        for head in hl.static_range(HEADS):
            out[head, tile] = x[head, tile] * 2.0
    return out


@helion.kernel(static_shapes=True, config=CONFIG)
def permute_in_turn(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Each head is made of other lanes of the one before."""
    for tile in hl.tile(x.size(1)):
        for head in hl.static_range(HEADS - 1):
            x[head + 1, tile] = hl.load(x, [head, places[tile]])
    return x


@helion.kernel(static_shapes=True, config=CONFIG)
def by_places(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Where a load goes is loaded behind a store."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(1)):
        for head in hl.static_range(HEADS):
            out[head, tile] = hl.load(x, [head, places[tile]]) * 2.0
    return out


@helion.kernel(static_shapes=True)
def weigh_rows(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        out[tile, :] = row / row.sum(-1)[:, None] * weight[:]
    return out


def accesses(code: str) -> str:
    """``L``, ``R`` and ``S`` for loads, reductions and stores, in their order."""
    lines = [line.strip() for line in code.splitlines()]
    return "".join(
        "L" if "tl.load(" in line else "S" if "tl.store(" in line else "R"
        for line in lines
        if "tl.load(" in line or "tl.sum(" in line or line.startswith("tl.store(")
    )


def run_on(run: Any, kernel: Any, *given: torch.Tensor) -> tuple[str, torch.Tensor]:
    artifact = kernel.bind(given).to_artifact(CONFIG, target="cuda:90")
    names = [parameter.name for parameter in artifact.parameters]
    copies = [tensor.clone() for tensor in given]
    values: dict[str, torch.Tensor] = dict(zip(["x", "places"], copies))
    values["out"] = torch.full_like(given[0], -7.0)
    results = run(artifact, *(values[name] for name in names))
    return accesses(artifact.source), results[names.index("out" if "out" in names else "x")]


@pytest.mark.parametrize("length", [64, 100])
def test_loads_run_ahead_of_stores_to_other_tensors(run: Any, length: int) -> None:
    x = torch.randn(HEADS, length)
    order, found = run_on(run, double_heads, x)
    assert order == "LLLLLLSSSSSS"
    check_against(found, x.double() * 2)


def test_as_many_bytes_run_ahead_as_registers_take() -> None:
    x = torch.randn(HEADS, 8192)
    for size, ahead in ((128, "LLLLLLSSSSSS"), (2048, "LLLS"), (8192, "LSLS")):
        config = helion.Config(block_sizes=[size], num_warps=4)
        code = double_heads.bind((x,)).to_triton_code(config, target="cuda:90")
        assert accesses(code).startswith(ahead)


def test_loads_stay_behind_stores_that_they_may_see(run: Any) -> None:
    x, places = torch.randn(HEADS, 64), torch.randperm(64)
    order, found = run_on(run, permute_in_turn, x, places)
    assert order == "LLS" + "LS" * (HEADS - 2)
    expected = [x[0]]
    for _ in range(HEADS - 1):
        expected.append(expected[-1][places])
    assert torch.equal(found, torch.stack(expected))


def test_loads_at_loaded_places(run: Any) -> None:
    x, places = torch.randn(HEADS, 100), torch.randperm(100)
    _, found = run_on(run, by_places, x, places)
    check_against(found, x.double()[:, places] * 2)


def test_weights_are_loaded_before_threads_wait_for_a_sum() -> None:
    config = helion.Config(block_sizes=[1], num_warps=4)
    # Up to 64 bytes of a thread: a row that is summed has registers of its own.
    for length, order in ((1024, "LLRS"), (2048, "LLRS"), (4096, "LRLS"), (16384, "LRLS")):
        given = torch.randn(4, length), torch.randn(length)
        code = weigh_rows.bind(given).to_triton_code(config, target="cuda:90")
        assert accesses(code) == order
