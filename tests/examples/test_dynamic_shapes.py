"""Example kernels with `static_shapes=False`: one kernel for all sizes, against fp64."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
from examples import softmax
from tests.examples.case import Case, Size
from tests.examples.cases import EXAMPLES
from tests.host_backends import BACKENDS


def cube_first(sizes: tuple[Size, ...]) -> list[Size]:
    """Equal extents first: what is equal in the first call must not be taken to stay equal."""
    return sorted(sizes, key=lambda size: (len(set(size)), -sum(size)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "case", [case for case in EXAMPLES if not case.needs_static_shapes], ids=str
)
def test_one_kernel_serves_all_sizes(case: Case, backend: str) -> None:
    kernel = helion.kernel(case.kernel.fn, static_shapes=False, backend=backend)  # pyright: ignore[reportArgumentType, reportCallIssue]
    dtype = case.dtypes[0]
    for size in cube_first(case.sizes):
        args = case.make_inputs(size, dtype, "cpu")
        case.check(kernel(*args), args, size, dtype)
        compiled = kernel.bind(args).compile_config(case.config)
        case.check(compiled(*args), args, size, dtype)


def test_sizes_beyond_one_share_a_bound_kernel() -> None:
    kernel = helion.kernel(softmax.softmax.fn, static_shapes=False)
    bound = [kernel.bind((torch.randn(m, n),)) for m, n in ((15, 17), (16, 16), (37, 53))]
    assert bound[0] is bound[1] is bound[2]
