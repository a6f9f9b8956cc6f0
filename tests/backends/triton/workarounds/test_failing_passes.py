"""Forms on which a pass of Triton 3.6 fails ("PassManager::run failed"): none of them is emitted.

Later versions compile them, so the text is looked at as well (docs/decisions/0012).
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples import nvfp4_gemm
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.schedule.config import Config

TARGET = "cuda:90"


def compiled(kernel: Any, args: tuple[Any, ...], config: Config) -> str:
    """The code, which Triton has compiled."""
    bound = kernel.bind(args, target=TARGET)
    normal = bound.config_spec.normalize(config)
    artifact = bound.specialization.artifact(normal, bound.target)
    compile_artifact(artifact, scalars={p.name: 8 for p in artifact.parameters if not p.is_tensor})
    return artifact.source


@tilesmith.kernel
def stores_in_first_turn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for tile in hl.tile(x.size(0)):
        v, w = x[tile], y[tile]
        for turn in hl.grid(3):
            if turn == 0:
                out[tile] = v
                v, w = w, v
        out[tile] = v + w
    return out


@tilesmith.kernel
def adds_turns(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for tile in hl.tile(x.size(0)):
        v = x[tile]
        for turn in hl.grid(3):
            v = v * turn + 1.0
        out[tile] = v
    return out


UNROLLED = Config(block_sizes=[64], range_unroll_factors=[0, 2])


def test_branches_that_store_are_not_unrolled() -> None:
    """Coalescing knows nothing of an arm that a constant turn never takes."""
    args = (torch.randn(100), torch.randn(100))
    assert "loop_unroll_factor" not in compiled(stores_in_first_turn, args, UNROLLED)
    spec = stores_in_first_turn.bind(args, target=TARGET).config_spec
    assert spec.normalize(UNROLLED)["range_unroll_factors"] == [0, 0]
    factors = [spec.random_config(Random(seed))["range_unroll_factors"][1] for seed in range(20)]
    assert factors == [0] * 20


def test_options_that_a_loop_cannot_have_are_remarked_on(capsys) -> None:
    data = (torch.randn(100), torch.randn(100))
    rows = (torch.zeros(8, 64, dtype=torch.int8), 4)
    flat = Config(block_sizes=[1], pid_type="persistent_blocked", range_flattens=[True, None])
    for kernel, args, config, entry in (
        (stores_in_first_turn, data, UNROLLED, "range_unroll_factors[1]=2"),
        (sorts_again, rows, flat, "range_flattens[0]=True"),
    ):
        for _ in range(2):
            kernel.bind(args, target=TARGET).set_config(config)
        text = capsys.readouterr().err
        assert text.count(f"WARNING[ConfigEntryIgnored]: {entry} has no effect on this loop") == 1
        assert "test_failing_passes.py" in text
    adds_turns.bind((torch.randn(100),), target=TARGET).set_config(UNROLLED)
    assert not capsys.readouterr().err


def test_loops_without_branches_are_unrolled() -> None:
    assert "loop_unroll_factor=2" in compiled(adds_turns, (torch.randn(100),), UNROLLED)


@tilesmith.kernel
def sorts_again(x: torch.Tensor, times: int) -> tuple[torch.Tensor, torch.Tensor]:
    first, last = torch.empty_like(x), torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        v = x[tile, :]
        before = v + 1
        for _ in hl.grid(times):
            w, _ = torch.sort(before, dim=1, stable=True)
            v, before = before, w
        first[tile, :] = v
        last[tile, :] = before
    return first, last


def test_loops_around_a_sort_are_not_flattened() -> None:
    args = (torch.zeros(8, 64, dtype=torch.int8), 4)
    config = Config(block_sizes=[1], pid_type="persistent_blocked", range_flattens=[True, None])
    assert "flatten=True" not in compiled(sorts_again, args, config)
    spec = sorts_again.bind(args, target=TARGET).config_spec
    chosen = [spec.random_config(Random(seed))["range_flattens"][0] for seed in range(20)]
    assert chosen == [None] * 20


@tilesmith.kernel
def repeats_rounded_rows(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for row in hl.grid(x.size(0)):
        v = torch.trunc(x[row, :])
        for tile in hl.tile(out.size(1)):
            out[row, tile, :] = v[None, :]
    return out


def test_new_axes_come_after_a_conversion_that_was_taken_from_a_loop() -> None:
    args = (torch.randn(4, 32), torch.zeros(4, 64, 32, dtype=torch.float16))
    config = Config(block_sizes=[16], range_unroll_factors=[0, 2])
    text = compiled(repeats_rounded_rows, args, config)
    before, _, inside = text.partition("for offset_tile in")
    assert ".to(tl.float16)" in before
    assert "[None, :].to(" not in text
    assert ".to(tl.float16)" not in inside


@pytest.mark.parametrize("rows", [64, 128])
def test_merged_operands_that_are_turned_around_stay_merged(rows: int) -> None:
    """Triton put all axes of the tile into shared memory, and found no layout for them."""
    packed = torch.zeros(rows, 2048, dtype=torch.uint8)
    scales = torch.ones(rows, 256, dtype=torch.float8_e4m3fn)
    args = (packed, packed.clone(), scales, scales.clone(), 1.0, 1.0)
    config = Config(block_sizes=[rows, rows, 4], num_warps=4, num_stages=3)
    text = compiled(nvfp4_gemm.nvfp4_gemm, args, config)
    assert ".to(tl.int16, bitcast=True).to(tl.bfloat16, bitcast=True))" in text
