"""What ``hl.paired`` gives is one index: it may have a name, and is not unpacked."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend


@helion.kernel
def unpacked(x: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    out = x.new_empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        hl.store(out, [t], hl.load(x, [*hl.paired(t.index, columns[t])]))
    return out


@helion.kernel
def taken_apart(x: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    out = x.new_empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        rows, places = hl.paired(t.index, columns[t])
        out[t] = x[rows, places]
    return out


@pytest.mark.parametrize("kernel", [unpacked, taken_apart])
def test_unpacking_is_refused(kernel: helion.Kernel) -> None:
    """It formed a product, and was told to be paired, which it was."""
    with pytest.raises(helion.exc.InvalidArgumentValue, match="not to be unpacked") as error:
        kernel(torch.randn(5, 7), torch.zeros(5, dtype=torch.int64))
    assert "hl.paired(t.index, columns[t])" in str(error.value)


@helion.kernel
def named(x: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    out = x.new_empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        place = hl.paired(t.index, columns[t])
        total = x[place]
        for turn in range(3):
            if turn > 0:
                total = total + x[place]
        out[t] = total
    return out


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_pair_may_have_a_name(backend: str) -> None:
    x, columns = torch.randn(13, 7), torch.arange(13) * 5 % 7
    picked = x.gather(1, columns[:, None])[:, 0]
    assert torch.equal(on_backend(named, backend)(x, columns), picked + picked + picked)
