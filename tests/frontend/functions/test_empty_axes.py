"""Axes known to be empty: what has an answer gives eager's, what has none raises as eager does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc

INFINITY = float("inf")
WITHOUT_AN_ANSWER: dict[str, Callable[[Any], Any]] = {
    "amax": lambda v: v.amax(-1),
    "amax of all": lambda v: v.amax(),
    "amin": lambda v: v.amin((0, 1)),
    "max": lambda v: v.max(-1).values,
    "max of all": lambda v: v.max(),
    "min": lambda v: torch.min(v, 1)[1],
    "argmax": lambda v: v.argmax(dim=-1),
    "argmin": lambda v: v.argmin(1, keepdim=True)[:, 0],
    "argmin of all": lambda v: v.argmin(),
    "aminmax": lambda v: torch.aminmax(v, dim=1).min,
    "median": lambda v: v.median(1).values,
    "quantile": lambda v: torch.quantile(v, 0.5, dim=1),
    "largest magnitude": lambda v: torch.linalg.vector_norm(v, INFINITY, dim=1),
    "least magnitude": lambda v: torch.linalg.vector_norm(v, -INFINITY, dim=1),
}
WITH_AN_ANSWER: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda v: torch.softmax(v, 1).sum(1),
    "logsumexp": lambda v: torch.logsumexp(v, 1),
    "cummax": lambda v: torch.cummax(v, 1).values.sum(1),
    "larger of two": lambda v: torch.max(v, v).sum(1),
    "product": lambda v: v.prod(1),
    "sort": lambda v: v.sort(1).values.sum(1),
    "other axis": lambda v: v.amax(0).sum(),
}


def each_row(x, function):
    out = x.new_empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        out[t] = function(x[t, :]).to(torch.float32)
    return out


@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize("name", WITHOUT_AN_ANSWER)
def test_extremes_of_nothing_raise(name: str, is_static: bool) -> None:
    function = WITHOUT_AN_ANSWER[name]
    with pytest.raises((IndexError, RuntimeError)):
        function(torch.empty(5, 0))
    with pytest.raises(exc.EmptyReduction) as caught:
        helion.kernel(each_row, static_shapes=is_static)(torch.empty(5, 0), function)
    assert isinstance(caught.value, IndexError)


@pytest.mark.parametrize("name", WITH_AN_ANSWER)
def test_the_rest_is_as_eager(name: str) -> None:
    x = torch.empty(5, 0)
    expected = WITH_AN_ANSWER[name](x).expand(5)
    assert torch.equal(helion.kernel(each_row)(x, WITH_AN_ANSWER[name]), expected)
