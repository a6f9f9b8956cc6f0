"""What fp64 code computes from runtime floats is as exact as in Python."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend


@helion.kernel
def arithmetic(x: torch.Tensor, a: float, n: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + a * n + (a + 1) / n - a**2 + abs(-a)
    return out


@helion.kernel
def filled(x: torch.Tensor, a: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        value = hl.full([t], a, dtype=torch.float64)
        out[t] = value + torch.full_like(value, a) + x[t].new_full([t], a)
    return out


@pytest.mark.parametrize("backend", BACKENDS)
def test_arithmetic_on_runtime_numbers_alone(backend: str) -> None:
    x, a, n = torch.arange(5, dtype=torch.float64), 0.1, 3
    expected = x + (a * n + (a + 1) / n - a**2 + a)
    found = on_backend(arithmetic, backend)(x, a, n)
    torch.testing.assert_close(found, expected, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("backend", BACKENDS)
def test_tiles_filled_with_a_runtime_number(backend: str) -> None:
    found = on_backend(filled, backend)(torch.zeros(5, dtype=torch.float64), 0.1)
    assert torch.equal(found, torch.full([5], 0.1 + 0.1 + 0.1, dtype=torch.float64))


def test_the_triton_kernel_takes_a_double() -> None:
    args = (torch.zeros(5, dtype=torch.float64), 0.1)
    assert 'a_f64: "fp64"' in filled.bind(args, target="cuda:90").to_triton_code()
