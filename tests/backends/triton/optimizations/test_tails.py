"""``1 + erf(x)`` by one exponential: what it is used for, and how far it is from the truth."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional

import tilesmith as helion
import tilesmith.language as hl
from examples.matmul import matmul
from tests.interpreted import run_function
from tilesmith.backends.triton.optimizations.gaussian_tails import use_tails
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.verifier import verify_function

CONFIG = helion.Config(block_sizes=[64])


@helion.kernel(static_shapes=True, config=CONFIG)
def gelu(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(like)
    for tile in hl.tile(x.size(0)):
        out[tile] = functional.gelu(x[tile].float()).to(like.dtype)
    return out


@helion.kernel(static_shapes=True, config=CONFIG)
def unrounded_sum(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.erf(x[tile]) + 1.0
    return out


@helion.kernel(static_shapes=True, config=CONFIG)
def other_sum(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(like)
    for tile in hl.tile(x.size(0)):
        out[tile] = (torch.erf(x[tile]) + 0.5).to(like.dtype)
    return out


@helion.kernel(static_shapes=True, config=CONFIG)
def summed_rows(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    out = torch.empty([1], dtype=like.dtype, device=x.device)
    for tile in hl.tile(1):
        out[tile] = (torch.erf(x[:]) + 1.0).sum(-1)[None].to(like.dtype)
    return out


def exact(x: torch.Tensor) -> torch.Tensor:
    """A Gaussian unit in fp64, which does not cancel."""
    return x.double() * 0.5 * torch.special.erfc(-x.double() * 0.5**0.5)


def functions_in(function: Any) -> set[str]:
    return {op.fn for op in walk_function(function) if isinstance(op, Elementwise)}


def run_tails(kernel: Any, x: torch.Tensor, dtype: torch.dtype) -> tuple[Any, torch.Tensor]:
    out = torch.full_like(x, 7.0, dtype=dtype)
    function = use_tails(kernel.bind((x, out)).function)
    verify_function(function)
    run_function(function, {"x": x, "out": out}, {"tile": 64})
    return function, out


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [1, 63, 64, 65, 4001])
def test_a_gaussian_unit_is_as_near_to_fp64_as_rounding_lets_it(size: int, dtype: torch.dtype):
    x = torch.linspace(-9.0, 9.0, size) if size > 1 else torch.tensor([-0.75])
    function, out = run_tails(gelu, x, dtype)
    assert "exp2" in functions_in(function)
    wanted = exact(x)
    # Half a unit of the type, what fp32 adds to it, and what is below its smallest numbers.
    unit = torch.finfo(dtype).eps / 2
    bound = wanted.abs() * (unit + 4e-4) + 2e-7 * x.abs() + torch.finfo(dtype).tiny
    assert bool(((out.double() - wanted).abs() <= bound).all())


def test_the_tail_keeps_digits_that_a_sum_with_one_loses():
    x = torch.linspace(-4.5, -3.0, 500)
    wanted = exact(x)
    out = run_tails(gelu, x, torch.bfloat16)[1].double()
    by_sum = (x * 0.5 * (torch.erf(x * 0.5**0.5) + 1.0)).double()
    assert (out - wanted).norm() < 0.5 * (by_sum - wanted).norm() + 0.004 * wanted.norm()


def test_what_is_no_number_stays_so_and_infinities_have_their_limits():
    x = torch.tensor([math.nan, math.inf, -1e30, 1e30, 0.0, -0.0, -200.0])
    _, out = run_tails(gelu, x, torch.float16)
    assert out[0].isnan()
    assert out[1] == out[3] == math.inf
    assert out[2:3].tolist() == [0.0]
    assert out[4:].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("kernel", [unrounded_sum, other_sum, summed_rows])
def test_what_shows_its_last_bits_or_is_another_sum_stays(kernel: Any):
    x = torch.randn(70)
    function = kernel.bind((x, x.bfloat16())).function
    assert "erf" in functions_in(function)
    assert functions_in(use_tails(function)) == functions_in(function)


def test_emitted_modules_use_it():
    x = torch.randn(70)
    code = gelu.bind((x, x.bfloat16())).to_triton_code(CONFIG, target="cuda:90")
    assert "tl.exp2" in code
    assert "erf" not in code
    plain = gelu.bind((x, x)).to_triton_code(CONFIG, target="cuda:90")
    assert "tl.erf" in plain


def test_a_product_with_a_gaussian_unit_keeps_its_large_tiles():
    x, y = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((8192, 4096), (4096, 16384)))
    epilogues = [lambda acc, tile: functional.gelu(acc), lambda acc, tile: torch.tanh(acc)]
    specs = [matmul.bind((x, y, epilogue), target="cuda:90").config_spec for epilogue in epilogues]
    assert [spec.default_config().block_sizes[:2] for spec in specs] == [[128, 256], [128, 128]]
