"""``topk`` along axes whose length is known at run time only."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend


@helion.kernel(static_shapes=False)
def of_tiles(x: torch.Tensor, largest: hl.constexpr) -> tuple[torch.Tensor, torch.Tensor]:
    values = x.new_empty([helion.cdiv(x.size(0), 4), 3])
    places = torch.empty_like(values, dtype=torch.int64)
    for t in hl.tile(x.size(0), block_size=4):
        values[t.id, :], places[t.id, :] = torch.topk(x[t], 3, largest=largest)
    return values, places


@helion.kernel(static_shapes=False)
def of_rows(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty([x.size(0), 4])
    for t in hl.tile(x.size(0)):
        out[t, :] = torch.topk(x[t, :], 4).values
    return out


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bfloat16])
def test_what_a_short_tile_lacks_is_worse_than_all(dtype, largest, backend) -> None:
    kernel = on_backend(of_tiles, backend)
    for n in (9, 8, 10, 3):
        x = torch.randn(n).mul(100).to(dtype)
        values, places = kernel(x, largest)
        info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        worst = info.min if largest else info.max
        worst = float("-inf" if largest else "inf") if dtype.is_floating_point else worst
        for number, part in enumerate(x.split(4)):
            best, at = part.sort(descending=largest, stable=True)
            count = min(3, len(part))
            assert torch.equal(values[number, :count], best[:3])
            assert torch.equal(places[number, :count], at[:3])
            assert (values[number, count:] == worst).all()


def test_rows_that_are_too_short_are_refused_at_the_call() -> None:
    x = torch.randn(2, 9)
    assert torch.equal(of_rows(x), x.topk(4).values)
    for _ in range(2):
        with pytest.raises(helion.exc.InvalidArgumentValue, match="k=4 of 3 elements"):
            of_rows(torch.randn(2, 3))
    assert torch.equal(of_rows(x), x.topk(4).values)
