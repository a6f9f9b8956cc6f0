"""A default for small sizes is replaced where larger ones would take minutes to build."""

from __future__ import annotations

from dataclasses import replace
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
from tilesmith.runtime.launchers.long_builds import MOST_BYTES, refuse_long
from tilesmith.schedule.config import Config


@tilesmith.kernel(static_shapes=False)
def rows_plus_one(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :] + 1
    return out


class Launch:
    """Stands for a function that launches."""

    is_replaceable = True

    def __call__(self, *values: Any) -> None:
        """Launch nothing."""


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
    launch = Launch()
    if is_refused:
        with pytest.raises(errors.TritonError, match=f"hold {256 * padded * 4 // 128} bytes"):
            refuse_long(artifact, launch, constexprs, Path("x.py"))
    else:
        refuse_long(artifact, launch, constexprs, Path("x.py"))
    launch.is_replaceable = False
    refuse_long(artifact, launch, constexprs, Path("x.py"))


def test_fixed_sizes_are_the_business_of_the_default() -> None:
    fixed = tilesmith.kernel(rows_plus_one.fn, static_shapes=True)
    bound = fixed.bind((torch.empty(300, 17),), target="cuda:90")
    config = bound.config_spec.normalize(bound.default_config())
    artifact = bound.specialization.artifact(config, bound.target)
    assert not artifact.bytes_of_threads
    refuse_long(replace(artifact, bytes_of_threads=""), Launch(), (), Path("x.py"))


def test_the_last_config_refuses_nothing() -> None:
    made = [Launch(), Launch(), Launch()]
    configs = [Config(num_warps=n) for n in (1, 2, 4)]
    by_warps = dict(zip((1, 2, 4), made))
    fallback = Fallback(
        configs[0],
        lambda: configs,
        lambda config: by_warps[config["num_warps"]],
        WarningLog(),
        is_late=True,
    )
    current = fallback.advance()
    for _ in range(2):
        assert current.is_replaceable  # type: ignore[attr-defined]
        problem = errors.TritonError.wrapping(ValueError("x"), function="f", path="p")
        current = fallback.replace(current, problem)
    assert current is made[2]
    assert not made[2].is_replaceable
