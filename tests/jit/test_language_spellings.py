"""Host code is Python: statements of every kind run there as they stand."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc


@helion.kernel
def many_statements(x, limit):
    import operator as op

    sizes = []
    sizes.append(x.size(0))
    kinds = {1, 2, 3}
    add = lambda a: op.add(a, 1)  # noqa: E731
    spare = 4
    del spare
    with torch.no_grad():
        out = torch.empty_like(x)
    if x.size(0) > limit:
        raise ValueError(f"at most {limit} elements")
    squares = {n: n * n for n in range(3) if n}
    (first, *rest), last = [len(kinds), 0, 0], (count := add(1))
    try:
        scale = squares[7]
    except KeyError:
        scale = first + sum(rest)
    while count < 5:
        count += 1
    for t in hl.tile(sizes[0]):
        out[t] = x[t] * scale + last + count
    return {"out": out, "count": count}


@pytest.mark.parametrize("static_shapes", [True, False])
@pytest.mark.parametrize("n", [0, 1, 37])
def test_statements_of_host_code(n, static_shapes):
    ignored = [exc.TensorOperationInWrapper]
    kernel = helion.kernel(many_statements.fn, static_shapes=static_shapes, ignore_warnings=ignored)
    x = torch.arange(float(n))
    result = kernel(x, 40)
    assert torch.equal(result["out"], x * 3 + 2 + 5)
    assert result["count"] == 5
    with pytest.raises(ValueError, match="at most 3 elements"):
        kernel(torch.zeros(4), 3)
