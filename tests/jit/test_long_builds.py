"""A default for small sizes is replaced where larger ones would take minutes to build."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.exc as errors
import tilesmith.language as hl
from tilesmith.backends.triton.build import evaluate_constexprs
from tilesmith.diagnostics.kernel_warnings import WarningLog
from tilesmith.jit.fallbacks import Fallback
from tilesmith.runtime.arguments import FindOther, Launcher
from tilesmith.runtime.launchers.long_builds import MOST_BYTES, LongBuilds
from tilesmith.schedule.config import Config


@tilesmith.kernel(static_shapes=False)
def rows_plus_one(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :] + 1
    return out


def artifact_of(block: int, warps: int) -> Any:
    bound = rows_plus_one.bind((torch.empty(300, 17),), target="cuda:90")
    config = bound.config_spec.normalize(Config(block_sizes=[block], num_warps=warps))
    return bound.specialization.artifact(config, bound.target)


@pytest.mark.parametrize(
    ("columns", "is_refused"), [(17, False), (250, False), (500, True), (2000, True)]
)
def test_what_a_thread_holds_depends_on_the_launch(columns: int, is_refused: bool) -> None:
    artifact = artifact_of(block=256, warps=4)
    sizes = {p.name: columns for p in artifact.parameters if not p.is_tensor}
    constexprs = tuple(evaluate_constexprs(artifact, artifact.target, sizes).values())
    padded = 1 << (columns - 1).bit_length()
    assert (256 * padded * 4 // 128 >= MOST_BYTES) == is_refused
    problems: list[errors.TritonError] = []

    def find_other(problem: errors.TritonError) -> Launcher:
        problems.append(problem)
        return problems.append

    builds = LongBuilds(artifact, Path("x.py"), find_other)
    for _ in range(2):
        assert builds.find(*constexprs) == (problems.append if is_refused else None)
    assert len(problems) == is_refused
    assert all(f"hold {256 * padded * 4 // 128} bytes" in str(problem) for problem in problems)


def test_fixed_sizes_are_the_business_of_the_default() -> None:
    fixed = tilesmith.kernel(rows_plus_one.fn, static_shapes=True)
    bound = fixed.bind((torch.empty(300, 17),), target="cuda:90")
    config = bound.config_spec.normalize(bound.default_config())
    artifact = bound.specialization.artifact(config, bound.target)
    assert not artifact.bytes_of_threads


class Launches:
    """Stands for launchers: sizes from ``most`` on go to what launches those."""

    def __init__(self, most: dict[int, int], unbuilt: tuple[int, ...] = ()) -> None:
        self.most, self.unbuilt = most, unbuilt
        self.seen: list[tuple[int, int]] = []

    def make(self, config: Config, find_other: FindOther | None = None) -> Launcher:
        warps = config["num_warps"]
        found: list[Launcher] = []

        def launch(size: int) -> None:
            problem = errors.TritonError.wrapping(ValueError("too long"), function="f", path="p")
            if warps in self.unbuilt:
                raise problem
            if find_other is None or size < self.most[warps]:
                self.seen.append((warps, size))
                return
            if not found:
                found.append(find_other(problem))
            found[0](size)

        return launch

    def fallback(self, stream: io.StringIO) -> Fallback:
        configs = [Config(num_warps=n) for n in (1, 2, 4)]
        log = WarningLog(stream=stream)
        return Fallback(configs[0], lambda: configs, self.make, log, is_late=True)


def test_each_size_is_launched_with_the_first_config_that_takes_it() -> None:
    launches, stream = Launches({1: 10, 2: 100, 4: 1000}), io.StringIO()
    fallback = launches.fallback(stream)
    for size in (5, 50, 500, 5000, 50, 5):
        fallback.launch(size)
    assert launches.seen == [(1, 5), (2, 50), (4, 500), (4, 5000), (2, 50), (1, 5)]
    assert stream.getvalue().count("WARNING[ConfigReplaced]") == 2


def test_a_config_that_fails_for_large_sizes_leaves_that_of_small_ones() -> None:
    launches, stream = Launches({1: 10, 4: 10}, unbuilt=(2,)), io.StringIO()
    fallback = launches.fallback(stream)
    for size in (50, 5, 50):
        fallback.launch(size)
    assert launches.seen == [(4, 50), (1, 5), (4, 50)]
