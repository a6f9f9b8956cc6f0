"""Layer norm of one column: the gradient is zero because two equal terms cancel.

The general budget is relative to the result, which is zero here; what may remain is the rounding of
the terms: four fp32 operations on values of size ``|weight * grad_out * rstd|``.
"""

from __future__ import annotations

import pytest
import torch

from examples import layer_norm
from tests.examples.founding_cases import norm_gradient_inputs
from tilesmith.numerics.compare import check_against
from tilesmith.schedule.config import Config

ROUNDINGS = 4
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rows", [1, 15, 16, 17])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_only_rounding_of_the_terms_remains(rows: int, dtype: torch.dtype, device: str):
    args = norm_gradient_inputs((rows, 1), dtype, device)
    grad_out, _, weight, _, rstd, _ = args
    terms = (weight.double() * grad_out.double() * rstd.double()[:, None]).abs()
    bound = layer_norm.layer_norm_bwd.bind(args)
    small = bound.compile_config(Config(block_sizes=[16, 16]))
    for run in (layer_norm.layer_norm_bwd, small):
        grad_x, grad_weight, grad_bias = run(*args)
        assert not torch.any(grad_weight)  # the normalised column is exactly zero
        check_against(grad_bias, grad_out.double().sum(0), reduction_length=rows)  # pyright: ignore[reportArgumentType]
        assert grad_x.dtype == dtype
        allowed = ROUNDINGS * torch.finfo(torch.float32).eps * terms + torch.finfo(dtype).tiny
        assert torch.all(grad_x.double().abs() <= allowed)
