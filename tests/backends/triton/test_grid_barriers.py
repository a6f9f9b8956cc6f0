"""Code for barriers: a counter that is zero at every launch, and programs that are resident."""

from __future__ import annotations

import pytest
import torch

from tests.conformance.barrier_kernels import centred_columns, compacted, two_stages
from tests.conformance.documented_kernels import DOCUMENTED
from tilesmith.artifacts import Artifact
from tilesmith.backends.triton.build import compile_artifact

TARGETS = ("cuda:90", "cuda:80", "hip:gfx942")


def artifact_of(kernel: object, target: str = "cuda:90", x: torch.Tensor | None = None) -> Artifact:
    args = (torch.ones(37, 21) if x is None else x,)
    bound = kernel.bind(args, target=target)  # type: ignore[attr-defined]
    return bound.to_artifact(bound.config_spec.default_config())


def test_the_counter_is_made_at_every_launch() -> None:
    artifact = artifact_of(two_stages)
    counter = artifact.parameters[-1]
    assert counter.is_tensor
    assert counter.source == "torch.zeros(1, dtype=torch.int32, device=x.device)"


def test_the_counter_has_a_name_of_its_own() -> None:
    names = [parameter.name for parameter in artifact_of(two_stages).parameters]
    assert len(set(names)) == len(names)


def test_each_barrier_waits_for_as_many_more_arrivals() -> None:
    source = artifact_of(centred_columns).source
    waits = [line.strip() for line in source.splitlines() if "_wait_for_arrivals(barrier" in line]
    assert waits == [
        "_wait_for_arrivals(barrier_counter, tl.num_programs(0))",
        "_wait_for_arrivals(barrier_counter, tl.num_programs(0) * 2)",
    ]


def test_a_later_bound_is_read_after_the_barrier() -> None:
    source = artifact_of(compacted, x=torch.ones(101)).source
    assert source.index("_wait_for_arrivals(barrier") < source.index("tl.load(count")


def test_no_more_programs_than_multiprocessors() -> None:
    artifact = artifact_of(two_stages)
    assert artifact.grid[0].startswith("min(num_sms, ")
    assert artifact.options["launch_cooperative_grid"] is True


def test_kernels_without_barriers_need_none_of_it() -> None:
    case = DOCUMENTED[0]
    artifact = case.kernel.bind(case.make_args(), target="cuda:90").to_artifact(case.config)
    assert "launch_cooperative_grid" not in artifact.options
    assert "barrier" not in artifact.source


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", [two_stages, centred_columns], ids=["two", "three"])
def test_compiles(kernel: object, target: str) -> None:
    info = compile_artifact(artifact_of(kernel, target))
    assert info.binary


def test_arrivals_release_and_waits_acquire() -> None:
    assembly = compile_artifact(artifact_of(two_stages)).assembly["ptx"]
    assert "atom.global.gpu.acq_rel.add" in assembly
    assert "ld.global.gpu.acquire" in assembly or "atom.global.gpu.acquire" in assembly
