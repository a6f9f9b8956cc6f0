"""Views, factories and matrix products of the table against eager, on tiles that are partial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn import functional

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import randn
from tests.host_backends import BACKENDS, on_backend
from tilesmith import exc
from tilesmith.frontend.functions.creation import CREATION
from tilesmith.frontend.functions.shape import SHAPES
from tilesmith.frontend.functions.torch_products import MATMULS
from tilesmith.numerics.compare import check_against

CONFIG = helion.Config(block_sizes=[4])

backends = pytest.mark.parametrize("backend", BACKENDS)


class View(NamedTuple):
    """A function of a [rows, 8, 2] value; ``names`` are the rows of the table it uses."""

    names: str
    fn: Callable[..., Any]


VIEWS = [
    View("subscript", lambda v: v[:, None, :, :]),
    View("subscript", lambda v: v[..., None]),
    View("subscript", lambda v: v[None]),
    View("unsqueeze", lambda v: v.unsqueeze(-1)),
    View("unsqueeze", lambda v: torch.unsqueeze(v, 1)),
    View("squeeze", lambda v: v[:, None].squeeze(1)),
    View("squeeze", lambda v: v[:, :, None].squeeze()),
    View("reshape", lambda v: v.reshape(v.shape[0], 16)),
    View("reshape", lambda v: torch.reshape(v, (v.shape[0], 2, -1))),
    View("view", lambda v: v.view(v.size(0), 4, 4)),
    View("view", lambda v: v.view(v.size(0), -1)),
    View("flatten", lambda v: v.flatten(1)),
    View("flatten", lambda v: torch.flatten(v, 1, 2)),
    View("transpose", lambda v: v.transpose(1, 2)),
    View("transpose", lambda v: torch.transpose(v, 0, -1)),
    View("swapaxes", lambda v: v.swapaxes(1, 2)),
    View("swapdims", lambda v: torch.swapdims(v, 0, 1)),
    View("permute", lambda v: v.permute(2, 0, 1)),
    View("permute", lambda v: torch.permute(v, (1, 2, 0))),
    View("T", lambda v: v.sum(2).T),
    View("t", lambda v: v.sum(2).t()),
    View("mT", lambda v: v.mT),
    View("expand", lambda v: v[:, :, None, :].expand(-1, 8, 3, 2)),
    View("broadcast_to", lambda v: torch.broadcast_to(v[:, None], (v.shape[0], 5, 8, 2))),
    View("expand_as", lambda v: v.sum(2)[:, :, None].expand_as(v)),
    View("view_as", lambda v: v.reshape(v.shape[0], 4, 4).view_as(v)),
    View("reshape_as", lambda v: v.reshape(v.shape[0], 16).reshape_as(v)),
    View("select", lambda v: v.select(1, 5)),
    View("unflatten", lambda v: v.unflatten(1, (2, -1))),
    View("movedim", lambda v: v.movedim(0, 2)),
    View("moveaxis", lambda v: torch.moveaxis(v, (2, 1), (0, 1))),
    View("ravel", lambda v: v.ravel().reshape(v.shape[0], 16)),
]


@helion.kernel
def summed(x, out, fn):
    for t in hl.tile(x.size(0)):
        out[t] = fn(x[t, :, :]) + x[t, 0, 0]


def weighing(view: View, rank: int) -> Callable[[Any], Any]:
    """Reduces a view to one number per row of x that tells every order of elements apart."""

    def fn(value: Any) -> Any:
        result = view.fn(value)
        assert result.dim() == rank
        # The tile axis may stand anywhere: move it to the front by its size.
        axis = 0
        if isinstance(result, torch.Tensor):
            axis = list(result.shape).index(value.shape[0])
        else:
            sizes = [dim.symbol for dim in result.tile.shape]
            axis = sizes.index(value.tile.shape[0].symbol)
        others = [i for i in range(rank) if i != axis]
        result = result.permute(axis, *others) if axis else result
        for position in range(rank - 1, 0, -1):
            size = result.shape[position]
            weights = torch.arange(1, size + 1)
            result = (result * weights).sum(position)
        return result

    return fn


@backends
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.names)
def test_views(view: View, backend: str) -> None:
    x = randn(7, 8, 2).round(decimals=2)
    rank = view.fn(x).dim()
    fn = weighing(view, rank)
    exact = fn(x.double()) + x.double()[:, 0, 0]
    out = torch.empty(7)
    on_backend(summed, backend).bind((x, out, fn)).compile_config(CONFIG)(x, out, fn)
    check_against(out, exact, reduction_length=240)


def cleared(value: Any) -> Any:
    """Memory that nobody wrote may hold NaN."""
    return value.masked_fill(value == value.clone(), 0.0).masked_fill(torch.isnan(value), 0.0)


FACTORIES: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda v: torch.zeros([v.shape[0], 8]),
    "ones": lambda v: torch.ones([v.shape[0], 8], dtype=torch.float16),
    "empty": lambda v: cleared(torch.empty((v.shape[0], 8))),
    "full": lambda v: torch.full([v.shape[0], 8], 2.5),
    "arange": lambda v: torch.arange(8)[None, :] + v * 0,
    "eye": lambda v: torch.eye(3, 8)[2] + torch.eye(8, dtype=torch.float64)[5] + v * 0,
    "tensor": lambda v: torch.tensor(1.5) + v * 0,
    "zeros_like": torch.zeros_like,
    "ones_like": lambda v: torch.ones_like(v, dtype=torch.int32),
    "empty_like": lambda v: cleared(torch.empty_like(v)),
    "full_like": lambda v: torch.full_like(v, 7),
    "new_zeros": lambda v: v.new_zeros(v.shape[0], 8),
    "new_ones": lambda v: v.new_ones([v.shape[0], 8]),
    "new_empty": lambda v: cleared(v.new_empty([v.shape[0], 8])),
    "new_full": lambda v: v.new_full([v.shape[0], 8], -1, dtype=torch.int64),
    "zeros by name": lambda v: torch.zeros(size=(v.shape[0], 8)),
    "new_ones by name": lambda v: v.new_ones(size=(), dtype=torch.bool) & (v > 0),
}


@helion.kernel
def made(x, out, fn):
    for t in hl.tile(x.size(0)):
        out[t, :] = fn(x[t, :])


@backends
@pytest.mark.parametrize("name", FACTORIES)
def test_factories(name: str, backend: str) -> None:
    x = randn(7, 8).half()
    seen: list[torch.dtype] = []

    def fn(value: Any) -> Any:
        result = FACTORIES[name](value)
        seen.append(result.dtype)
        return result

    expected = fn(x)
    out = torch.empty(7, 8, dtype=expected.dtype)
    on_backend(made, backend).bind((x, out, fn)).compile_config(CONFIG)(x, out, fn)
    assert seen[0] == seen[1]
    assert torch.equal(out, expected.expand(7, 8))


Product = Callable[[Any, Any, Any], Any]
PRODUCTS: dict[str, Product] = {
    "mm": lambda x, y, z: torch.mm(x, y),
    "matmul": lambda x, y, z: x @ y,
    "addmm": lambda x, y, z: torch.addmm(z, x, y),
    "linear": lambda x, y, z: functional.linear(x, y.t(), z),
    "bmm": lambda x, y, z: torch.bmm(x[None], y[None])[None].sum(0).sum(0),
    "baddbmm": lambda x, y, z: torch.baddbmm(z[None], x[None], y[None]).sum(0),
}


@helion.kernel
def multiplied(x, y, z, out, fn):
    for t, u in hl.tile(out.size()):
        out[t, u] = fn(x[t, :], y[:, u], z[t, u])


@backends
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, dtype: torch.dtype, backend: str) -> None:
    x, y, z = (randn(*shape, dtype=dtype) for shape in ((19, 21), (21, 17), (19, 17)))
    seen: list[torch.dtype] = []

    def fn(*values: Any) -> Any:
        result = PRODUCTS[name](*values)
        seen.append(result.dtype)
        return result

    out = torch.empty(19, 17, dtype=dtype)
    config = helion.Config(block_sizes=[16, 16])
    bound = on_backend(multiplied, backend).bind((x, y, z, out, fn))
    bound.compile_config(config)(x, y, z, out, fn)
    assert set(seen) == {dtype}
    exact = PRODUCTS[name](x.double(), y.double(), z.double())
    # The sum of product and z rounds twice where it is not fused.
    check_against(out, exact, reduction_length=22, intermediate=[dtype])


OF_VECTORS: dict[str, Callable[[Any, Any], Any]] = {
    "mv": torch.mv,
    "dot": lambda m, v: torch.mv(m, v) + torch.dot(v, v),
    "vdot": lambda m, v: torch.mv(m, v) + torch.vdot(v, v),
    "outer": lambda m, v: m.sum(1) + torch.outer(v, v).sum(1).sum(0),
    "linalg_vecdot vecdot": lambda m, v: torch.linalg.vecdot(m, v[None, :]),
}


@helion.kernel
def of_rows(x, v, out, fn):
    for t in hl.tile(x.size(0)):
        out[t] = fn(x[t, :], v[:])


@backends
@pytest.mark.parametrize("name", OF_VECTORS)
def test_products_of_vectors(name: str, backend: str) -> None:
    x, v, out = randn(9, 21), randn(21), torch.empty(9)
    on_backend(of_rows, backend)(x, v, out, OF_VECTORS[name])
    check_against(out, OF_VECTORS[name](x.double(), v.double()), reduction_length=21 * 21)


def test_every_row_of_the_table_is_called() -> None:
    views = {name for view in VIEWS for name in view.names.split()}
    assert set(SHAPES) - views == set()
    assert set(CREATION) - set(FACTORIES) == set()
    of_vectors = {part for name in OF_VECTORS for part in name.split()}
    # Attention has operands of its own: tests/conformance/lookup_kernels.py.
    attention = {"scaled_dot_product_attention"}
    assert set(MATMULS) - set(PRODUCTS) - of_vectors == attention


@pytest.mark.parametrize(
    "fn",
    [
        lambda v: v.reshape(-1, 3),
        lambda v: v.view(7),
        lambda v: v.expand(3, 9),
        lambda v: v + torch.zeros(9),
    ],
)
def test_shapes_that_do_not_fit_are_refused(fn: Callable[[Any], Any]) -> None:
    x, out = randn(7, 8), torch.empty(7, 8)
    with pytest.raises(exc.BaseError):
        made.bind((x, out, fn))


@pytest.mark.parametrize("name", ["linspace", "randperm"])
def test_factories_without_a_rule_are_refused(name: str) -> None:
    arguments = {"linspace": (0.0, 1.0, 8), "randperm": (8,)}[name]
    x, out = randn(8, 8), torch.empty(8, 8)
    with pytest.raises(exc.UnsupportedTorchFunction, match=f"torch.{name}"):
        made.bind((x, out, lambda v: v + getattr(torch, name)(*arguments)))
