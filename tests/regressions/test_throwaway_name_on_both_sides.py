"""`_` takes what is not wanted on the host and in device code alike; it is no shared variable."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel
def largest(x: torch.Tensor) -> torch.Tensor:
    m, _ = x.size()
    out = torch.empty([m], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(m):
        values, _ = torch.max(x[tile_m, :], dim=1)
        out[tile_m] = values
    return out


@helion.kernel
def reads_it(x: torch.Tensor) -> torch.Tensor:
    m, _ = x.size()
    out = torch.empty([m], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(m):
        _ = x[tile_m, 0]
        out[tile_m] = _
    return out


def test_it_may_be_bound_on_both_sides() -> None:
    x = torch.randn(5, 7)
    assert torch.equal(largest(x), x.amax(1))


def test_it_may_not_be_read_in_device_code_then() -> None:
    with pytest.raises(helion.exc.CannotModifyHostVariableOnDevice):
        reads_it(torch.randn(5, 7))
