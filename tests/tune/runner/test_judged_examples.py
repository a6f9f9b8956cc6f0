"""Kernels of the gallery as the tuner sees them: any Config is right, a damaged result is not."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch

from tests.examples.case import Case
from tests.examples.cases import EXAMPLES
from tests.host_backends import on_backend
from tests.lab.workload.launching import launch_native
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.lab.workload.binding import Binding
from tilesmith.lab.workload.capture import Captured, capture
from tilesmith.lab.workload.loading import Workload
from tilesmith.numerics.judge import Judge
from tilesmith.numerics.oracle import OracleOptions, Reference, work_out_reference
from tilesmith.schedule.config import Config
from tilesmith.tune.workspace import CandidateBinder

STEP = 6
"""Every so many cases take part, and all whose host code looks at the Config."""
NAMES = {"layer_norm_bwd", "rms_norm_bwd", "split_k_barrier", "matmul_split_k", "attention"}
CASES = [case for i, case in enumerate(EXAMPLES) if i % STEP == 0 or case.name in NAMES]


def work_out(candidates: CandidateBinder, workload: Workload, config: Config) -> Reference:
    job = candidates.reference(config)
    workload.restore(job.binding)
    arguments = workload.arguments(job.binding)
    options = OracleOptions(job.max_programs, job.seed, 60.0)
    return work_out_reference(job.function, arguments, dict(job.sizes), options)


def run(bound: BoundKernel, config: Config, binding: Binding, workload: Workload) -> None:
    artifact = bound.to_artifact(config)
    launch_native(
        artifact, list(workload.arguments(binding).values()), Path(bound.settings.cache_dir)
    )


def configs_of(bound: BoundKernel, captured: Captured) -> list[Config]:
    spec = bound.config_spec
    random = spec.random_config(Random(captured.function.name))
    return [spec.normalize(bound.default_config()), spec.normalize(random)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_candidates_are_right_and_damage_shows(case: Case, tmp_path: Path) -> None:
    args = case.make_inputs(case.sizes[-1], case.dtypes[-1], "cpu")
    bound = on_backend(case.kernel, "cpu").bind(args)
    basis = capture(bound, args, bound.config_spec.normalize(bound.default_config()))
    workload = Workload.load(basis.save(tmp_path), "cpu")
    candidates = CandidateBinder(bound, args, basis, tmp_path)
    reference = None
    for config in configs_of(bound, basis):
        if reference is None or basis.depends_on_config:
            reference = work_out(candidates, workload, config)
        judge = Judge(reference)
        binding = candidates.bind(config, bound.to_artifact(config))
        workload.restore(binding)
        run(bound, config, binding, workload)
        outputs = workload.outputs(binding)
        report = judge.check(outputs)
        assert report.is_right, f"{config}: {report.reason}"
        damage(outputs, reference)
        assert not judge.check(outputs).is_right


def damage(outputs: dict[str, torch.Tensor], reference: Reference) -> None:
    """Change the last element that is known."""
    name, tensor = next((n, t) for n, t in reference.tensors.items() if t.written.any())
    index = tuple(tensor.written.nonzero()[-1].tolist())
    old = outputs[name][index]
    outputs[name][index] = 1 - old if old.dtype is torch.bool else old * 2 + 100
