"""Tensors that launches make for themselves."""

from __future__ import annotations

import pytest
import torch

from tilesmith.artifacts import LaunchParameter
from tilesmith.runtime.launch_tensors import make_launch_tensor

COUNTER = LaunchParameter("c", "torch.zeros(1, dtype=torch.int32, device=x.device)", True, "i32")
SCRATCH = LaunchParameter(
    "s", "torch.empty((3, 5), dtype=torch.float32, device=xs[0].device)", True, "f32"
)


@pytest.mark.parametrize(
    ("parameter", "shape", "dtype"),
    [(COUNTER, (1,), torch.int32), (SCRATCH, (3, 5), torch.float32)],
)
def test_they_are_made_wherever_asked_for(parameter, shape, dtype):
    for device in ("cpu", "meta"):
        made = make_launch_tensor(parameter, device)
        assert (tuple(made.shape), made.dtype, made.device.type) == (shape, dtype, device)
    name, count = parameter.made_form
    assert (getattr(torch, name), count) == (dtype, made.numel())


def test_only_counters_start_at_zero():
    assert (COUNTER.is_made_at_launch, COUNTER.is_zeroed) == (True, True)
    assert (SCRATCH.is_made_at_launch, SCRATCH.is_zeroed) == (True, False)
    argument = LaunchParameter("x", "x", True, "f32")
    assert (argument.is_made_at_launch, argument.is_zeroed) == (False, False)
    assert torch.equal(make_launch_tensor(COUNTER, "cpu"), torch.zeros(1, dtype=torch.int32))
