"""Exact products of fp32 by warps with roles: the bits of the plain form, whatever the order."""

from __future__ import annotations

from random import Random

import pytest
import torch

import tilesmith
from examples.matmul import matmul
from tests.device.chip import DEVICE, IS_HOPPER, sized
from tilesmith import Config
from tilesmith.numerics.compare import check_against

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not IS_HOPPER, reason="warps have roles on compute capability 9.0"),
]
FORM = "multiply_add_roles"
SIZES = [
    *((1, 1, 4), (4, 3, 8), (64, 97, 64), (127, 32, 129), (128, 32, 128), (129, 31, 132)),
    *((132, 100, 260), (0, 8, 8), (8, 0, 8), (300, 300, 8), (257, 193, 136)),
    *sized(((1021, 509, 1024), (2048, 2048, 2048), (4099, 96, 4)), ()),
]
exact = tilesmith.kernel(matmul.fn, static_shapes=True, dot_precision="ieee")


def operands(size: tuple[int, int, int], turned: str) -> tuple[torch.Tensor, torch.Tensor]:
    m, k, n = size
    torch.manual_seed(k)
    x, y = torch.randn(m, k, device=DEVICE), torch.randn(k, n, device=DEVICE)
    x = x.T.contiguous().T if "x" in turned else x
    return x, y.T.contiguous().T if "y" in turned else y


def plain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return exact.bind((x, y)).compile_config(Config(block_sizes=[16, 16, 16]))(x, y)


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize("turned", ["", "x", "y", "xy"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_bits_of_the_plain_form(size, turned, seed):
    x, y = operands(size, turned)
    form = exact.bind((x, y)).config_spec.forms().get(FORM)
    if form is None:
        pytest.skip("an operand whose rows the copy engine cannot bring")
    config = form.default_config() if seed is None else form.random_config(Random(seed))
    run = exact.bind((x, y)).compile_config(config.updated(structure=FORM))
    found = run(x, y)
    check_against(found, x.double() @ y.double(), reduction_length=max(1, size[1]))
    assert torch.equal(found, plain(x, y))
    assert torch.equal(run(x, y), found)


@pytest.mark.parametrize("turned", ["", "x", "y", "xy"])
@pytest.mark.parametrize("side", [0, 1])
def test_misaligned_operands(side, turned):
    """They run in the plain form."""
    args = list(operands((132, 100, 260), turned))
    form = exact.bind(tuple(args)).config_spec.forms()[FORM]
    run = exact.bind(tuple(args)).compile_config(form.default_config().updated(structure=FORM))
    x = args[side]
    memory = torch.empty(x.numel() + 1, device=DEVICE)
    args[side] = torch.as_strided(memory[1:], x.size(), x.stride(), 1).copy_(x)
    assert torch.equal(run(*args), plain(*args))
