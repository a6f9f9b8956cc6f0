"""Products of tf32 whose right operand is turned in registers: the same function, in that form."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.matmul import matmul as product
from tests.backends.triton.kernels import make, matmul, parse, schedule
from tests.interpreted import run_function
from tilesmith.backends.triton.optimizations.turned_products import turn_products
from tilesmith.ir.verifier import verify_function

SIZES = {"tile_m": 64, "tile_n": 64, "tile_k": 32}
TURNED = "tl.trans(y_tile).to(tl.int32, bitcast=True) & -8192"


def turned_schedule(**changes: Any) -> Any:
    options: dict[str, Any] = {"symbols": SIZES, "num_warps": 4, **changes}
    return schedule(**options)


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 32), (65, 130, 33), (1, 70, 100)])
def test_the_turned_function_means_the_same(m: int, n: int, k: int) -> None:
    function = parse(matmul(m, n, k, "f32", "tf32"))
    turned = turn_products(function, turned_schedule())
    assert turned is not function
    verify_function(turned)
    x, y = torch.randn(m, k), torch.randn(k, n)
    before, after = ({"x": x, "y": y, "out": torch.zeros(m, n)} for _ in range(2))
    run_function(function, before, SIZES)
    run_function(turned, after, SIZES)
    torch.testing.assert_close(after["out"], before["out"], rtol=1e-6, atol=1e-5)


def test_the_module_runs_and_compiles(run: Any) -> None:
    m, n, k = 65, 100, 40
    artifact = make(matmul(m, n, k, "f32", "tf32"), symbols=SIZES, num_warps=4)
    assert TURNED in artifact.source
    x, y = torch.randn(m, k), torch.randn(k, n)
    result = run(artifact, x, y, torch.full((m, n), -7.0))[2]
    # The interpreter multiplies what is cut to ten bits of the right operand exactly.
    cut = (y.view(torch.int32) & ~8191).view(torch.float32)
    torch.testing.assert_close(result.double(), x.double() @ cut.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "precision", "changes"),
    [
        ("f32", "tf32", {"num_warps": 2}),
        ("f32", "tf32", {"symbols": {**SIZES, "tile_n": 32}}),
        ("f32", "tf32x3", {}),
        ("f32", "ieee", {}),
        ("bf16", "ieee", {}),
    ],
    ids=["two_warps", "few_columns", "tf32x3", "ieee", "bf16"],
)
def test_what_would_not_gain_stays(dtype: str, precision: str, changes: dict[str, Any]) -> None:
    function = parse(matmul(128, 128, 64, dtype, precision))
    assert turn_products(function, turned_schedule(**changes)) is function


@helion.kernel(static_shapes=True, dot_precision="tf32")
def watched(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A product whose accumulator the loop looks at."""
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc * 0.5, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc
    return out


CONFIG = helion.Config(block_sizes=[128, 128, 32], num_warps=8, num_stages=3)


def code(kernel: Any, x: torch.Tensor, y: torch.Tensor, target: str = "cuda:90") -> str:
    return kernel.bind((x, y), target=target).to_triton_code(CONFIG)


def test_only_rows_on_hopper_are_turned() -> None:
    kernel = helion.kernel(product.fn, static_shapes=True, dot_precision="tf32")
    x, y = torch.empty(256, 512), torch.empty(512, 256)
    assert TURNED in code(kernel, x, y)
    assert TURNED not in code(kernel, x, y.T.contiguous().T)
    assert TURNED not in code(kernel, x.T.contiguous().T, y)
    assert TURNED not in code(kernel, x, y, "cuda:80")
    assert TURNED not in code(kernel, x, y, "cuda:100")
    assert TURNED not in code(watched, x, y)
    assert TURNED in code(kernel, torch.empty(250, 500), torch.empty(500, 250))
