"""What ``hl.register_block_size`` allows holds for defaults, given configs and the search."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.frontend.test_locations import traced
from tests.lowering import run_standard
from tests.specs import config_spec
from tilesmith import exc
from tilesmith.targets import parse_target

TARGETS = ("cpu", "cuda:90", "hip:gfx942")


def block_sizes_seen(x: torch.Tensor, low: hl.constexpr, high: hl.constexpr) -> torch.Tensor:
    block = hl.register_block_size(low, high)
    out = torch.empty([x.size(0)], dtype=torch.int32, device=x.device)
    for t in hl.tile(x.size(0), block_size=block):
        out[t] = hl.zeros([t], dtype=torch.int32) + t.block_size
    return out


def most_alone(x: torch.Tensor) -> torch.Tensor:
    block = hl.register_block_size(64)
    out = torch.empty([x.size(0)], dtype=torch.int32, device=x.device)
    for t in hl.tile(x.size(0), block_size=block):
        out[t] = hl.zeros([t], dtype=torch.int32) + t.block_size
    return out


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("size", [1, 31, 257, 5000])
@pytest.mark.parametrize("static_shapes", [True, False])
def test_defaults_keep_to_the_bounds(backend: str, size: int, static_shapes: bool) -> None:
    settings: dict[str, Any] = {"backend": backend, "static_shapes": static_shapes}
    seen = helion.kernel(block_sizes_seen, **settings)(torch.zeros(size), 32, 256)
    assert 32 <= seen[0] <= 256
    assert helion.kernel(most_alone, **settings)(torch.zeros(size))[0] <= 64


@pytest.mark.parametrize("wrong", [16, 512])
def test_a_config_outside_is_refused(wrong: int) -> None:
    kernel = helion.kernel(block_sizes_seen, config=helion.Config(block_sizes=[wrong]))
    with pytest.raises(exc.InvalidConfigValue, match="from 32 to 256"):
        kernel(torch.zeros(5000), 32, 256)


@pytest.mark.parametrize("target", TARGETS)
def test_every_config_of_the_search_keeps_to_the_bounds(target: str) -> None:
    bound = helion.kernel(block_sizes_seen).bind((torch.zeros(5000), 32, 256))
    spec, rng = config_spec(run_standard(traced(bound)), parse_target(target)), Random(0)
    configs = [spec.default_config(), *(spec.random_config(rng) for _ in range(50))]
    sizes = {config.block_sizes[0] for config in configs}
    assert len(sizes) > 1
    assert min(sizes) >= 32
    assert max(sizes) <= 256


def test_the_length_of_the_axis_is_no_limit_for_configs() -> None:
    # Kernels registered with a size of theirs run under one config for small inputs, too.
    kernel = helion.kernel(block_sizes_seen, config=helion.Config(block_sizes=[512]))
    assert kernel(torch.zeros(100), 1, 100)[0] == 512
