"""Derived kernels say what they mean: whole axes of a dynamic kernel as indices warn of nothing."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
from examples.se_block import se_block_fwd


def test_whole_axes_of_a_dynamic_kernel_are_a_product(capfd: pytest.CaptureFixture[str]):
    """The text had ``w[hl.arange(n), hl.arange(n)]``, of which users were warned."""
    kernel = helion.kernel(se_block_fwd.fn, static_shapes=False)
    x, w = torch.randn(9, 6, dtype=torch.float64), torch.randn(6, 6, dtype=torch.float64)
    given = [tensor.clone().requires_grad_() for tensor in (x, w)]
    wanted = [tensor.clone().requires_grad_() for tensor in (x, w)]
    out = kernel(*given)
    (out[0] if isinstance(out, tuple) else out).square().sum().backward()
    (2 * wanted[0] * torch.sigmoid(wanted[0] @ wanted[1])).square().sum().backward()
    for ours, exact in zip(given, wanted):
        torch.testing.assert_close(ours.grad, exact.grad)
    assert "WARNING" not in capfd.readouterr().err
