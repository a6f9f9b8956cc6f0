"""Native code rounds a product before it is added to, as torch does: no fused multiply-add.

The operands are such that one rounding instead of two gives another number.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import OLDER_TARGETS, lanes, on_backend

W = lanes()
SIZES = (1, W - 1, W, 4 * W + 3)
HALF_DIGITS = {torch.float32: 12, torch.float64: 27}
"""``(1 + 2**-n)**2`` has one digit more than the type: its last one is lost in rounding."""


@helion.kernel
def product_minus(x, y, z):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * y[t] - z[t]
    return out


@helion.kernel
def minus_product(x, y, z):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = z[t] - x[t] * y[t]
    return out


@helion.kernel
def product_plus(x, y, z):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = -z[t] + x[t] * y[t]
    return out


@helion.kernel
def sum_of_products(x, y, z):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * y[t] + (-z[t]) * 1.0
    return out


FORMULAS: dict[object, Callable[..., torch.Tensor]] = {
    product_minus: lambda x, y, z: x * y - z,
    minus_product: lambda x, y, z: z - x * y,
    product_plus: lambda x, y, z: -z + x * y,
    sum_of_products: lambda x, y, z: x * y + (-z) * 1.0,
}
kernels = pytest.mark.parametrize("kernel", FORMULAS, ids=lambda k: k.fn.__name__)
dtypes = pytest.mark.parametrize("dtype", HALF_DIGITS, ids=str)


def operands(size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``x * y - z`` is exactly 0 with two roundings, and not 0 with one."""
    x = torch.full([size], 1.0 + 2.0 ** -HALF_DIGITS[dtype], dtype=dtype)
    x *= 2.0 ** (torch.arange(size) % 7)
    y = x.flip(0).contiguous()
    return x, y, x * y


@kernels
@dtypes
@pytest.mark.parametrize("size", SIZES)
def test_products_are_rounded_before_they_are_added(kernel, dtype, size: int) -> None:
    args = operands(size, dtype)
    expected = FORMULAS[kernel](*args)
    assert not expected.any()
    assert torch.equal(on_backend(kernel, "cpu")(*args), expected)


@kernels
@pytest.mark.parametrize("target", OLDER_TARGETS)
def test_other_vectors_round_the_same(kernel, target: str) -> None:
    args = operands(4 * W + 3, torch.float32)
    found = on_backend(kernel, "cpu").bind(args, target=target)(*args)
    assert torch.equal(found, FORMULAS[kernel](*args))


def test_a_fused_product_would_differ() -> None:
    for dtype in HALF_DIGITS:
        x, y, z = operands(W, dtype)
        exact = [int(a.item() * 2**60) * int(b.item() * 2**60) for a, b in zip(x, y)]
        assert all(product != int(c.item() * 2**60) * 2**60 for product, c in zip(exact, z))
