"""Products by numbers in pairs, as native code: two products for few rows, one for many."""

from __future__ import annotations

import pytest
import torch

from examples.int4_gemm import int4_gemm, pack, reference
from tilesmith.backends.cpu.schedule.rules import CpuRules
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.traversal import walk
from tilesmith.numerics.compare import check_against
from tilesmith.passes.product_forms.halves import multiply_halves


@pytest.mark.parametrize(
    "shape", [(1, 2, 1), (1, 258, 65), (33, 64, 17), (128, 66, 5), (129, 66, 5)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_few_rows_and_many(shape, dtype):
    m, k, n = shape
    generator = torch.Generator().manual_seed(k)
    x = torch.randn(m, k, generator=generator).to(dtype)
    packed = pack(torch.randint(-8, 8, [k, n], generator=generator))
    check_against(int4_gemm(x, packed), reference(x, packed), reduction_length=k)


def test_rows_decide():
    assert CpuRules.most_rows_by_pairs == 128
    x, packed = torch.randn(64, 64), torch.zeros(32, 16, dtype=torch.int8)
    function = int4_gemm.bind((x, packed)).config_spec.kernel.outline.function
    asked = []
    assert multiply_halves(function, lambda dim: bool(asked.append(str(dim)))) is None
    assert asked == ["tile_m"]
    made = multiply_halves(function)
    assert made is not None
    assert sum(isinstance(op, Dot) for op in walk(made.body)) == 2
