"""What is compiled for one key is made once: traces, specifications and artifacts."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
from tilesmith import language as hl
from tilesmith.compiler import specialization
from tilesmith.compiler.specialization import Specialization
from tilesmith.schedule.config import Config
from tilesmith.targets import Target, parse_target
from tools.house import frames_to_emit

GPU, CPU = parse_target("cuda:90"), parse_target("cpu:avx2")


@helion.kernel
def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


@helion.kernel
def by_parts(x: torch.Tensor) -> torch.Tensor:
    """Host code that looks at a block size."""
    block = hl.register_block_size(x.size(0))
    parts = x.new_empty((x.size(0) + block - 1) // block)
    for tile in hl.tile(x.size(0), block_size=block):
        parts[tile.id] = x[tile].sum()
    return parts


@pytest.fixture
def made() -> Specialization:
    double.reset()
    return double.bind((torch.zeros(64),)).specialization


def blocks(size: int) -> Config:
    return Config(block_sizes=[size])


@pytest.mark.parametrize("target", [GPU, CPU], ids=str)
def test_an_artifact_is_emitted_once(target: Target, made: Specialization) -> None:
    first = made.artifact(blocks(16), target)
    assert made.artifact(blocks(16), target) is first
    # The same config, spelled out in full.
    assert made.artifact(made.spec(target).normalize(blocks(16)), target) is first
    assert made.artifact(blocks(32), target) is not first


def test_targets_have_their_own_specifications_and_artifacts(made: Specialization) -> None:
    assert made.spec(GPU) is made.spec(GPU)
    assert made.spec(GPU) is not made.spec(CPU)
    assert made.artifact(blocks(16), GPU).target == GPU
    assert made.artifact(blocks(16), CPU).target == CPU


def test_old_artifacts_are_forgotten(made: Specialization, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specialization, "MAX_ARTIFACTS", 2)
    first, _, third = (made.artifact(blocks(size), GPU) for size in (8, 16, 32))
    assert made.artifact(blocks(32), GPU) is third
    again = made.artifact(blocks(8), GPU)
    assert again is not first
    assert again == first


def test_one_trace_serves_configs_that_host_code_does_not_look_at(made: Specialization) -> None:
    for size in (8, 16, 32):
        assert made.find(blocks(size)) is made.default


def test_host_code_that_looks_at_a_config_is_traced_for_it() -> None:
    made = by_parts.bind((torch.zeros(64),)).specialization
    eight = made.find(blocks(8))
    assert made.find(blocks(8)) is eight
    assert made.find(blocks(16)) is not eight
    assert made.spec(GPU, eight) is not made.spec(GPU, made.find(blocks(16)))


def test_little_stands_between_a_bound_kernel_and_emit() -> None:
    frames = frames_to_emit()
    assert frames[-1] == "emit"
    assert len(frames) - 1 <= 8, frames
