"""The GPU workloads in small: what their kernels return is accepted in the types of the table."""

from __future__ import annotations

import pytest
import torch

from benchmarks.gpu_defaults import judge
from benchmarks.tuning_workloads import TUNING_WORKLOADS
from benchmarks.workloads import Tensors, Workload
from tilesmith.numerics.compare import AccuracyError

BY_NAME = {workload.name: workload for workload in TUNING_WORKLOADS}
CPU = torch.device("cpu")


def inputs_in_own_type(workload: Workload) -> Tensors:
    """The small inputs, in the type that is benchmarked on a GPU."""
    made = workload.inputs(CPU, smoke=True)
    return tuple(value.to(workload.dtype) if value.is_floating_point() else value for value in made)


def result_of(workload: Workload, inputs: Tensors) -> torch.Tensor:
    kernel = workload.load_kernel()
    returned = kernel(*kernel.normalize_args(*inputs))
    return returned[0] if isinstance(returned, tuple) else returned


@pytest.mark.parametrize("name", BY_NAME)
def test_own_kernel_is_accepted(name: str):
    workload = BY_NAME[name]
    inputs = inputs_in_own_type(workload)
    report = judge(workload, result_of(workload, inputs), workload.exact(*inputs), inputs)
    assert report.is_within_budget, str(report)


def test_a_loss_may_be_wider_than_its_logits_and_nothing_else_may():
    loss, norm = BY_NAME["cross_entropy bf16 8192x32000"], BY_NAME["rms_norm bf16 8192x8192"]
    assert result_of(loss, inputs_in_own_type(loss)).dtype is torch.float32
    inputs = inputs_in_own_type(norm)
    exact = norm.exact(*inputs)
    with pytest.raises(AccuracyError, match="dtypes differ"):
        judge(norm, exact.float(), exact, inputs)


def test_a_wider_loss_is_judged_as_what_it_is():
    loss = BY_NAME["cross_entropy bf16 8192x32000"]
    inputs = inputs_in_own_type(loss)
    exact = loss.exact(*inputs)
    coarse = exact.to(torch.bfloat16)
    assert judge(loss, coarse, exact, inputs).is_within_budget
    assert not judge(loss, coarse.float(), exact, inputs).is_within_budget
