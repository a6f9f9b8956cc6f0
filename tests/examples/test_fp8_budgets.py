"""What fp8 tensor cores make of a sum is within the budgets of fp8 products."""

from __future__ import annotations

import torch

from benchmarks.suites.narrow_products import fp8_sum_roundings, scaled_fp8
from examples import fp8_gemm
from examples.ports import fp8_blockwise
from tests.examples.ports.ports import PORTS
from tests.fp8_units import fp8_product
from tilesmith.numerics.compare import measure_error

# Of an element of a large product, more than of any among a few thousand.
MOST_USED = 0.75


def test_blocks_with_scales_of_their_own() -> None:
    port = next(port for port in PORTS if port.name == "fp8_blockwise")
    for size in port.sizes:
        args = port.make_inputs(size, fp8_blockwise.FP8, "cpu")
        port.check(_blockwise(*args), args, size, fp8_blockwise.FP8)


def _blockwise(
    x: torch.Tensor, w: torch.Tensor, x_scales: torch.Tensor, w_scales: torch.Tensor
) -> torch.Tensor:
    total = torch.zeros(x.size(0), w.size(0))
    for block in range(x_scales.size(1)):
        part = slice(block * fp8_blockwise.BLOCK, (block + 1) * fp8_blockwise.BLOCK)
        product = fp8_product(x.float()[:, part], w.float()[:, part].T)
        columns = w_scales[torch.arange(w.size(0)) // fp8_blockwise.BLOCK, block]
        total += product * x_scales[:, block, None] * columns[None, :]
    return total.bfloat16()


def test_long_sums_stay_far_enough_from_the_limit() -> None:
    """451 of the 16.8 million elements of a product of 4096 were refused on an H200."""
    torch.manual_seed(0)
    size = (40, 4096, 40)
    args = x, y, x_scale, y_scale = scaled_fp8(size, torch.device("cpu"), torch.float16)
    actual = (fp8_product(x.float(), y.float()) * (x_scale * y_scale)).half()
    report = measure_error(
        actual,
        fp8_gemm.reference(*args),
        reduction_length=4096,
        intermediate=[torch.float16] * fp8_sum_roundings(*args),
    )
    assert report.is_within_budget
    assert abs(report.worst_actual - report.worst_reference) < MOST_USED * report.worst_allowed
