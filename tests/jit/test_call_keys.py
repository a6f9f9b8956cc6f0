"""Which calls share a compiled kernel, as the generated key functions tell it."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc


@helion.kernel
def scaled(x, alpha, mode):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * alpha
    return out


@helion.kernel
def with_constant(x, alpha: hl.constexpr):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * alpha
    return out


X = torch.randn(6, 4)
ONE = (X[0], 1.0, None)


@pytest.mark.parametrize(
    "other",
    [
        (torch.randn(4), 1.0, None),
        (X[1], 2.5, None),
        (X[0], float("nan"), None),
        (X[0].clone(), -0.0, None),
    ],
)
def test_equal_forms_share_a_key(other: tuple):
    assert scaled.specialization_key(ONE) == scaled.specialization_key(other)


@pytest.mark.parametrize(
    "other",
    [
        (torch.randn(5), 1.0, None),
        (X[:4, 0], 1.0, None),
        (X[0].double(), 1.0, None),
        (X[0].to("meta"), 1.0, None),
        (torch.nn.Parameter(X[0]), 1.0, None),
        (X[0], 1, None),
        (X[0], True, None),
        (X[0], 1.0, False),
        (X[0], 1.0, 0),
        (X[0], 1.0, ""),
        (X[0], 1.0, torch.float32),
        (X[0], 1.0, torch.relu),
        (X[0], 1.0, [1.0]),
    ],
)
def test_other_forms_have_other_keys(other: tuple):
    assert scaled.specialization_key(ONE) != scaled.specialization_key(other)


def test_integers_count_by_width_only():
    keys = [scaled.specialization_key((X[0], n, None)) for n in (0, -5, 2**30)]
    assert len(set(keys)) == 1
    for wide in (2**31, -(2**31) - 1, 2**62):
        assert scaled.specialization_key((X[0], wide, None)) != keys[0]


def test_constants_count_by_value():
    values = [1, 1.0, 2.0, 0.0, -0.0, True, None, "a"]
    keys = {with_constant.specialization_key((X[0], value)) for value in values}
    assert len(keys) == len(values)
    nan = [with_constant.specialization_key((X[0], float("nan"))) for _ in range(2)]
    assert nan[0] == nan[1]
    wrapped = with_constant.specialization_key((X[0], hl.constexpr(2.0)))  # pyright: ignore[reportCallIssue]
    assert wrapped != with_constant.specialization_key((X[0], hl.constexpr(3.0)))  # pyright: ignore[reportCallIssue]


def test_dynamic_shapes_share_a_key_unless_a_size_is_special():
    kernel = helion.kernel(scaled.fn, static_shapes=False)

    def key(x: torch.Tensor):
        return kernel.specialization_key((x, 1.0, None))

    assert key(torch.randn(5, 7)) == key(torch.randn(9, 3))
    for other in (torch.randn(1, 7), torch.randn(5, 0), torch.randn(7, 5).t(), torch.randn(5)):
        assert key(other) != key(torch.randn(5, 7))


@pytest.mark.parametrize("static_shapes", [True, False])
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_sparse_tensors_are_refused_by_name(static_shapes: bool, layout: torch.layout):
    kernel = helion.kernel(scaled.fn, static_shapes=static_shapes)
    with pytest.raises(exc.UnsupportedArgumentType, match=r"`x` is a tensor of layout .*sparse"):
        kernel(torch.eye(3).to_sparse(layout=layout), 1.0, None)


def test_errors_of_the_users_key_are_passed_on():
    def wrong(*_):
        raise RuntimeError("mine")

    kernel = helion.kernel(scaled.fn, key=wrong)
    with pytest.raises(RuntimeError, match="mine"):
        kernel(X[0], 1.0, None)
