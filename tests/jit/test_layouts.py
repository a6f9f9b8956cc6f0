# type: ignore
"""Tensors that are not plain memory are refused with what they are and what to do."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc
from tilesmith.jit.definition import KernelDefinition
from tilesmith.runtime.arguments import has_storage

X = torch.arange(12.0).reshape(3, 4)


def doubled(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.shape):
        out[tile] = x[tile] * 2
    return out


def doubled_first(tensors):
    x = tensors[0]
    out = torch.empty_like(x)
    for tile in hl.tile(x.shape):
        out[tile] = x[tile] * 2
    return out


class Wrapper(torch.Tensor):
    """Has sizes, and its elements in another tensor."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


class Labelled(torch.Tensor):
    """Has memory like any other tensor."""


REFUSED = {
    "a nested tensor": lambda: torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]),
    "layout torch.sparse_coo": X.to_sparse,
    "layout torch.sparse_csr": X.to_sparse_csr,
    "layout torch._mkldnn": X.to_mkldnn,
    "torch.qint8": lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),
    "torch.complex64": lambda: X.to(torch.complex64),
}


def test_wrappers_are_handed_the_operator() -> None:
    # What it does with it is its own affair: this one does not know any operator.
    with pytest.raises(NotImplementedError, match=r"tilesmith\.doubled"):
        helion.kernel(doubled)(Wrapper(X))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("static_shapes", [True, False])
@pytest.mark.parametrize("kind", REFUSED)
def test_tensors_of_other_kinds_are_refused(kind, static_shapes) -> None:
    tensor = REFUSED[kind]()
    kernel = helion.kernel(doubled, static_shapes=static_shapes)
    for _ in range(2):
        with pytest.raises(exc.UnsupportedArgumentType, match=kind):
            kernel(tensor)
        with pytest.raises(exc.UnsupportedArgumentType, match=kind):
            kernel.bind((tensor,))
        kernel(X)
    with pytest.raises(exc.UnsupportedArgumentType, match=kind):
        helion.kernel(doubled_first, static_shapes=static_shapes)([tensor])


def test_tensors_of_the_meta_device_are_for_code_only() -> None:
    kernel = helion.kernel(doubled)
    assert "tl.load" in kernel.bind((X.to("meta"),)).to_triton_code()
    with pytest.raises(exc.BackendUnsupported, match="device meta"):
        kernel(X.to("meta"))


@pytest.mark.parametrize("static_shapes", [True, False])
@pytest.mark.parametrize(("kernel", "nest"), [(doubled, False), (doubled_first, True)])
def test_sizes_that_are_symbols_are_refused(kernel, nest, static_shapes) -> None:
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        x = torch.empty(mode.shape_env.create_unbacked_symint(), 4)
    args = ([x],) if nest else (x,)
    with pytest.raises(exc.UnsupportedArgumentType, match="whose sizes are symbols"):
        helion.kernel(kernel, static_shapes=static_shapes).bind(args)


def test_fake_tensors_of_known_sizes_are_bound_in_silence() -> None:
    with FakeTensorMode():
        x = torch.empty(3, 4)
    was_always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # else torch tells of it once in a process
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert has_storage(x)
    finally:
        torch.set_warn_always(was_always)
    assert "tl.load" in helion.kernel(doubled).bind((x,)).to_triton_code()


def test_subclasses_with_memory_are_tensors() -> None:
    result = helion.kernel(doubled)(X.as_subclass(Labelled))
    assert type(result) is Labelled
    assert torch.equal(result, X * 2)


def plain_and_negated():
    """Tensors of one form each, of which the second has its sign flipped lazily."""
    z = torch.randn(4, 5, dtype=torch.complex64)
    yield z.imag, z.conj().imag
    yield z.imag[:1, :1], z.conj().imag[:1, :1]
    strided = (4, 5), (5, 1), 1
    yield z.imag.as_strided(*strided), z.conj().imag.as_strided(*strided)


@pytest.mark.parametrize("reads_natively", [True, False])
@pytest.mark.parametrize("static_shapes", [True, False])
@pytest.mark.parametrize("is_bound", [True, False], ids=["later call", "first call"])
def test_negated_views_are_refused(static_shapes, is_bound, reads_natively, monkeypatch) -> None:
    if not reads_natively:
        monkeypatch.setattr(KernelDefinition, "find_reader", lambda definition: None)
    kernel = helion.kernel(doubled, static_shapes=static_shapes)
    for plain, negated in plain_and_negated():
        for _ in range(3 * is_bound):
            torch.testing.assert_close(kernel(plain), plain * 2)
        assert negated.is_neg()
        for _ in range(2):
            with pytest.raises(exc.UnsupportedArgumentType, match="resolve_neg"):
                kernel(negated)
        torch.testing.assert_close(kernel(negated.resolve_neg()), negated * 2)


def test_negated_views_of_host_code_are_refused() -> None:
    @helion.kernel
    def parts(z, n: hl.constexpr):
        part = torch.view_as_complex(z).conj().imag if n else torch.view_as_complex(z).imag
        out = torch.empty_like(part)
        for tile in hl.tile(part.shape):
            out[tile] = part[tile] * 2
        return out

    z = torch.randn(7, 2)
    torch.testing.assert_close(parts(z, 0), z[:, 1] * 2)
    for _ in range(2):
        with pytest.raises(exc.UnsupportedArgumentType, match="resolve_neg"):
            parts(z, 1)
