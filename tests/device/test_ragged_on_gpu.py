"""Sequences laid end to end with warp roles on the GPU: against fp64, beside ones that are NaN."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch

from tests.backends.triton.warp_roles.test_ragged_roles import KERNELS, make_args, spoiled
from tests.device.chip import DEVICE, sized
from tilesmith.backends.triton.warp_roles.rules import FORM
from tilesmith.numerics.compare import check_against

pytestmark = pytest.mark.device

LENGTHS = sized(
    ((1, 63, 64, 65, 127, 0, 130, 577), (1021, 4095, 1, 257)),
    ((1, 63, 64, 65, 127, 0, 130), (193, 1, 257)),
)
NUM_REPEATS = sized(20, 1)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize("lengths", LENGTHS, ids=len)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("kind", KERNELS)
def test_agrees_with_fp64(kind, head_dim, lengths, seed):
    kernel, exact = KERNELS[kind]
    args = make_args(kind, lengths, d=head_dim, window=50 + sum(lengths[:2]), device=DEVICE)
    form = kernel.bind(args).config_spec.forms()[FORM]
    config = form.default_config() if seed is None else form.random_config(Random(seed))
    run = kernel.bind(args).compile_config(config.updated(structure=FORM))
    found, wanted = run(*args), exact(*args)
    checked: dict[str, Any] = {"reduction_length": max(lengths)}
    checked["intermediate"] = [torch.bfloat16] * 2
    check_against(found, wanted, **checked)
    assert all(torch.equal(run(*args), found) for _ in range(NUM_REPEATS))
    others = sum(lengths[:-1])
    check_against(run(*spoiled(args, others))[:others], wanted[:others], **checked)
