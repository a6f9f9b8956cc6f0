"""Every example kernel compiled for every target with random configs, without a device."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.examples.case import Case
from tests.examples.cases import EXAMPLES
from tests.examples.ports.ports import PORTS
from tilesmith.backends.triton.build import CompiledInfo, compile_artifact
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.schedule.config import Config

CASES = (*EXAMPLES, *PORTS)
TARGETS = ("cuda:80", "cuda:90", "cuda:100", "hip:gfx942", "hip:gfx950")
NUM_CONFIGS = 20
SHARE = 3
"""One kernel of so many is compiled in the short run: neighbours in the list are of one family."""


def compile_config(bound: BoundKernel, config: Config) -> CompiledInfo:
    """Compile; where Triton's own warp specialisation gives up on a loop, compile without it."""
    sizes = bound.specialization.default.trace.observed
    try:
        return compile_artifact(bound.to_artifact(config), scalars=sizes)
    except RuntimeError as error:
        is_given_up = "PassManager" in str(error) and any(config.get("range_warp_specializes", ()))
        if not is_given_up:
            raise
    plain = {key: value for key, value in config.items() if key != "range_warp_specializes"}
    return compile_artifact(bound.to_artifact(Config.from_dict(plain)), scalars=sizes)


def check_compiles(case: Case, seed: int, target: str, *, small: bool = False) -> None:
    rng = random.Random(f"{case.name} {target} {seed}")
    dtype, size = rng.choice(case.dtypes), rng.choice(case.sizes)
    args = case.make_inputs(size, dtype, "cpu")
    bound = case.kernel.bind(args, target=target)
    config = bound.config_spec.random_config(rng)
    if small:
        # The case's block sizes are for whole rows; other structures have other tiles.
        while config.get("structure"):
            config = bound.config_spec.random_config(rng)
        config = Config.from_dict({**config, **case.config})
    assert compile_config(bound, config).binary, (size, dtype, config)


def fixed_sample() -> list[Any]:
    """A third of the kernels, each with one target and one seed; all targets take turns."""
    sample: list[Any] = []
    for seed, case in enumerate(CASES[::SHARE]):
        targets = [target for target in TARGETS if target not in case.missing_targets]
        target = targets[seed % len(targets)]
        sample.append(pytest.param(case, target, seed, id=f"{case}-{target}-{seed}"))
    return sample


@pytest.mark.parametrize(("case", "target", "seed"), fixed_sample())
def test_random_config_with_small_blocks_compiles(case: Case, target: str, seed: int) -> None:
    # Some large blocks take Triton a minute; those are for the long run.
    check_compiles(case, seed, target, small=True)


@pytest.mark.full
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_config_compiles_for_any_target(case: Case, target: str) -> None:
    if target in case.missing_targets:
        pytest.skip("an element type is missing there")
    for seed in range(NUM_CONFIGS):
        check_compiles(case, seed, target)
