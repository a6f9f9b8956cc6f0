"""A kernel and its backward: in eager mode, in graphs; and calls whose gradients would be lost."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy
import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.operators import graph_kernels as kernels
from tilesmith.gradients.derived import DerivedBackward

backward_kernel = helion.kernel(kernels.softmax_backward)


def differentiable_softmax() -> Any:
    kernel = kernels.fresh(kernels.softmax)

    @kernel.register_backward
    def gradient(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        _, out = ctx.saved_tensors
        return backward_kernel(grad.contiguous(), out)

    assert callable(gradient)
    return kernel


def test_gradcheck():
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(differentiable_softmax(), (x,))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("is_derived", [False, True], ids=["registered", "derived"])
def test_gradients_in_graphs(backend: str, is_derived: bool):
    torch.compiler.reset()
    kernel = kernels.fresh(kernels.softmax) if is_derived else differentiable_softmax()
    compiled = torch.compile(lambda x: (kernel(x * 2) ** 2).sum(), backend=backend, fullgraph=True)
    for rows in (5, 6, 7):
        x = torch.randn(rows, 9, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        compiled(x).backward()
        (torch.softmax(y * 2, 1) ** 2).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


@helion.kernel(static_shapes=False)
def picked_rows(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Host code makes a view of an argument, and one of its type."""
    flat, wide = x.reshape(-1), x.to(torch.float64)
    out = torch.empty(places.size(), dtype=x.dtype, device=x.device)
    for tile in hl.tile(places.size(0)):
        picked = flat[tile.index * x.size(1) + places[tile]]
        out[tile] = picked * torch.logsumexp(wide[tile, :], 1).to(x.dtype)
    return out


def test_views_that_host_code_makes_have_gradients_in_graphs():
    torch.compiler.reset()
    compiled = torch.compile(picked_rows, backend="aot_eager", fullgraph=True)
    x, places = torch.randn(5, 7, requires_grad=True), torch.tensor([0, 6, 3, 3, 1])
    y = x.detach().clone().requires_grad_()
    compiled(x, places).sum().backward()
    (y[torch.arange(5), places] * y.logsumexp(1)).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_the_forward_does_not_run_again_in_graphs(monkeypatch: pytest.MonkeyPatch):
    def refuse(derived: DerivedBackward, launch: Any) -> Any:
        raise AssertionError("the forward ran again")

    torch.compiler.reset()
    monkeypatch.setattr(DerivedBackward, "_wrap", refuse)
    kernel = kernels.fresh(kernels.softmax)
    compiled = torch.compile(lambda x: kernel(x * 2) ** 2, backend="aot_eager", fullgraph=True)
    x = torch.randn(5, 9, requires_grad=True)
    out = compiled(x)
    (found,) = torch.autograd.grad(out.sum(), x)
    (wanted,) = torch.autograd.grad((torch.softmax(x * 2, 1) ** 2).sum(), x)
    torch.testing.assert_close(found, wanted)


def test_what_is_saved_can_be_said():
    kernel = kernels.fresh(kernels.scale)

    def save(ctx: Any, args: tuple[Any, ...], result: torch.Tensor) -> None:
        assert result.shape == args[0].shape
        ctx.factor = args[1]

    @kernel.register_backward(setup_context=save)
    def gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        assert not ctx.saved_tensors
        return grad * ctx.factor, None

    assert callable(gradient)
    x = torch.randn(6, requires_grad=True)
    kernel(x, 3.0).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((6,), 3.0))


def test_too_many_gradients_are_refused():
    kernel = kernels.fresh(kernels.softmax)
    kernel.register_backward(lambda ctx, grad: (grad, grad))
    x = torch.randn(3, 4, requires_grad=True)
    with pytest.raises(helion.exc.WrongGradients, match="gives 2 gradients"):
        kernel(x).sum().backward()


@pytest.mark.parametrize("is_warm", [False, True])
def test_lost_gradients_are_said_once(is_warm: bool, capsys: pytest.CaptureFixture[str]):
    kernel = kernels.fresh(kernels.scale, missing_gradient="warn")
    x = torch.randn(6, requires_grad=True)
    if is_warm:
        kernel(x.detach())
    kernel(x)
    kernel(x)
    assert capsys.readouterr().err.count("WARNING[GradientDropped]: `x` requires a gradient") == 1


@pytest.mark.parametrize("is_warm", [False, True])
def test_lost_gradients_can_be_errors(is_warm: bool):
    kernel = kernels.fresh(kernels.scale, missing_gradient="error")
    x = torch.randn(6, requires_grad=True)
    if is_warm:
        kernel(x.detach())
    with pytest.raises(helion.exc.GradientNotAvailable, match="`x` requires a gradient"):
        kernel(x)
    with torch.no_grad():
        torch.testing.assert_close(kernel(x), x.detach() * 2)


@pytest.mark.parametrize("is_warm", [False, True])
def test_leaves_are_not_changed_in_place(is_warm: bool):
    kernel = kernels.fresh(kernels.add_in_place)
    x, y = torch.randn(6, requires_grad=True), torch.randn(6)
    before = x.detach().clone()
    if is_warm:
        kernel(x.detach().clone(), y)
    with pytest.raises(helion.exc.LeafChangedInPlace, match="writes `x`"):
        kernel(x, y)
    torch.testing.assert_close(x.detach(), before)
    with torch.no_grad():
        kernel(x, y)
    torch.testing.assert_close(x.detach(), before + y)


def test_backward_through_a_graph_without_one_is_an_error():
    torch.compiler.reset()
    kernel = kernels.fresh(kernels.scale, missing_gradient="warn")
    compiled = torch.compile(lambda x: kernel(x).sum(), backend="eager", fullgraph=True)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        compiled(torch.randn(6, requires_grad=True)).backward()


@pytest.mark.parametrize("is_warm", [False, True])
def test_gradients_are_derived_where_none_is_registered(is_warm: bool):
    kernel = kernels.fresh(kernels.softmax)
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    if is_warm:
        kernel(x.detach())
    assert torch.autograd.gradcheck(kernel, (x,))
    assert torch.autograd.gradgradcheck(kernel, (x,))


def test_the_source_of_a_derived_backward():
    text = kernels.fresh(kernels.softmax).backward_source((torch.randn(5, 7),))
    assert "def softmax_backward(" in text
    assert "@helion.kernel" in text


def test_gradients_by_a_call():
    kernel = kernels.fresh(kernels.softmax)
    x, grad = torch.randn(5, 7), torch.randn(5, 7)
    y = x.clone().requires_grad_()
    torch.softmax(y, 1).backward(grad)
    found, source, module = helion.experimental.backward(kernel, grad, x, return_code=True)
    torch.testing.assert_close(found, y.grad)
    assert "def softmax_backward(" in source
    assert source.endswith("backward_kernel = softmax_backward\n")
    assert "@triton.jit" in module
    with pytest.raises(helion.exc.AutodiffNotSupported, match="2 gradients are given"):
        helion.experimental.backward(kernel, (grad, grad), x)


@pytest.mark.parametrize("backend", [None, "eager", "aot_eager"])
def test_what_is_written_has_a_gradient(backend: str | None):
    torch.compiler.reset()
    kernel = kernels.fresh(kernels.square_into)

    def function(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel(x * 2, out)
        return (out * 3).sum()

    compiled = function
    if backend is not None:
        compiled = torch.compile(function, backend=backend, fullgraph=True)
    for size in (6, 7):
        x = torch.randn(size, requires_grad=True)
        compiled(x).backward()
        torch.testing.assert_close(x.grad, 24 * x.detach())


def test_what_is_changed_in_a_graph_and_has_a_gradient_is_refused():
    torch.compiler.reset()
    kernel = kernels.fresh(kernels.square_into)

    def function(x: torch.Tensor) -> torch.Tensor:
        out = x * 1
        kernel(x, out)
        return out.sum()

    with pytest.raises(
        Exception, match="`out`, of which a gradient is wanted, is changed in place"
    ):
        torch.compile(function, backend="aot_eager")(torch.randn(6, requires_grad=True))


@pytest.mark.parametrize("is_derived", [False, True], ids=["registered", "derived"])
def test_transforms_of_torch_func(is_derived: bool):
    kernel = kernels.fresh(kernels.softmax) if is_derived else differentiable_softmax()
    x = torch.randn(3, 5, 7, dtype=torch.float64)

    def ours(rows: torch.Tensor) -> torch.Tensor:
        return (kernel(rows) ** 2).sum()

    def eager(rows: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(rows, 1) ** 2).sum()

    grad, vmap = torch.func.grad, torch.func.vmap
    torch.testing.assert_close(grad(ours)(x[0]), grad(eager)(x[0]))
    torch.testing.assert_close(vmap(grad(ours))(x), vmap(grad(eager))(x))
    torch.testing.assert_close(grad(lambda y: vmap(ours)(y).sum())(x), vmap(grad(eager))(x))
    jacobian = torch.func.jacrev(kernel)(x[0])
    torch.testing.assert_close(jacobian, torch.func.jacrev(lambda y: torch.softmax(y, 1))(x[0]))


def test_second_derivatives_by_torch_func():
    x = torch.randn(5, 7, dtype=torch.float64)

    def twice(function: Any) -> torch.Tensor:
        first = torch.func.grad(lambda y: (function(y) ** 2).sum())
        return torch.func.grad(lambda y: (first(y) ** 2).sum())(x)

    exact = twice(lambda y: torch.softmax(y, 1))
    torch.testing.assert_close(twice(differentiable_softmax()), exact)
    with pytest.raises(helion.exc.AutodiffNotSupported, match="differentiates it twice"):
        twice(kernels.fresh(kernels.softmax))


def test_several_launches_say_that_they_have_no_gradient(capsys: pytest.CaptureFixture[str]):
    kernel = kernels.fresh(kernels.two_launches)
    kernel(torch.rand(6, requires_grad=True))
    assert "WARNING[GradientDropped]" in capsys.readouterr().err


def never(*args: Any) -> Any:
    raise AssertionError("native code did not find it")


def require_native(kernel: Any) -> None:
    """From now on a call that native code does not find raises."""
    native = kernel._finder._native
    if native is None:
        pytest.skip("there is no native code for this torch")
    native.anew = native.otherwise = never


@pytest.mark.parametrize("is_derived", [False, True], ids=["registered", "derived"])
def test_native_code_finds_calls_with_gradients(is_derived: bool):
    kernel = kernels.fresh(kernels.softmax) if is_derived else differentiable_softmax()
    x = torch.randn(5, 7, requires_grad=True)
    kernel(x)
    require_native(kernel)
    grad = torch.randn(5, 7)
    (found,) = torch.autograd.grad(kernel(x), x, grad)
    (wanted,) = torch.autograd.grad(torch.softmax(x, 1), x, grad)
    torch.testing.assert_close(found, wanted)


def test_another_backward_replaces_one_that_was_used():
    kernel = kernels.fresh(kernels.scale)
    x = torch.randn(6, requires_grad=True)
    for number in (None, 3.0, 4.0):
        if number is not None:
            kernel.register_backward(lambda ctx, grad, number=number: (grad * number, None))
        for _ in range(2):
            (found,) = torch.autograd.grad(kernel(x, 2.0).sum(), x)
            torch.testing.assert_close(found, torch.full((6,), number or 2.0))


def test_tensors_in_containers_keep_their_gradients():
    kernel = kernels.fresh(kernels.weighted_sum)
    x, y = torch.randn(6, requires_grad=True), torch.randn(6)
    kernel({"x": x.detach(), "y": [y]}, (2.0, 3))
    for _ in range(3):
        (found,) = torch.autograd.grad(kernel({"x": x, "y": [y]}, (2.0, 3)).sum(), x)
        torch.testing.assert_close(found, torch.full((6,), 2.0))
    kernel.register_backward(lambda ctx, grad: ({"x": grad * 5, "y": [None]}, None))
    for _ in range(3):
        (found,) = torch.autograd.grad(kernel({"x": x, "y": [y]}, (2.0, 3)).sum(), x)
        torch.testing.assert_close(found, torch.full((6,), 5.0))
    require_native(kernel)
    assert kernel({"x": x, "y": [y]}, (2.0, 3)).requires_grad


def test_without_native_code_gradients_in_containers_are_kept(monkeypatch: pytest.MonkeyPatch):
    kernel = kernels.fresh(kernels.weighted_sum)
    monkeypatch.setattr(type(kernel.definition), "find_reader", lambda self: None)
    x, y = torch.randn(6, requires_grad=True), torch.randn(6)
    kernel({"x": x.detach(), "y": [y]}, (2.0, 3))
    for _ in range(3):
        assert kernel({"x": x, "y": [y]}, (2.0, 3)).requires_grad
        assert not kernel({"x": x.detach(), "y": [y]}, (2.0, 3)).requires_grad


@pytest.mark.parametrize("is_derived", [False, True], ids=["registered", "derived"])
def test_host_code_that_returns_at_once_has_gradients(is_derived: bool):
    kernel = kernels.fresh(kernels.scale_some)
    if not is_derived:
        kernel.register_backward(lambda ctx, grad: grad * 2)
    empty, x = torch.randn(0, requires_grad=True), torch.randn(4, requires_grad=True)
    for _ in range(2):
        (found,) = torch.autograd.grad(kernel(empty).sum(), empty)
        assert found.shape == (0,)
        (found,) = torch.autograd.grad(kernel(x).sum(), x)
        torch.testing.assert_close(found, torch.full((4,), 2.0))


def test_nothing_is_kept_alive():
    kernel = kernels.fresh(kernels.softmax)
    x = torch.randn(5, 7, requires_grad=True)

    def go_back() -> weakref.ref[torch.Tensor]:
        grad = torch.randn(5, 7)
        kernel(x).backward(grad)
        return weakref.ref(grad)

    for _ in range(2):
        watched = go_back()
        gc.collect()
        assert watched() is None


def test_gradients_of_containers_in_graphs():
    torch.compiler.reset()
    kernel = kernels.fresh(kernels.weighted_sum)
    compiled = torch.compile(lambda x, y: kernel({"x": x, "y": [y]}, (2.0, 3)), backend="eager")
    x, y = torch.randn(6, requires_grad=True), torch.randn(6, requires_grad=True)
    found = torch.autograd.grad(compiled(x, y).sum(), (x, y))
    torch.testing.assert_close(found, (torch.full((6,), 2.0), torch.full((6,), 3.0)))


@pytest.mark.parametrize("is_derived", [False, True], ids=["registered", "derived"])
def test_transforms_of_something_else(is_derived: bool):
    """A call with tensors that a transform does not know, while it runs."""
    kernel = kernels.fresh(kernels.softmax) if is_derived else differentiable_softmax()
    weight, x = torch.randn(4, 8, requires_grad=True), torch.randn(4, 8)
    for _ in range(2):
        found = torch.func.grad(lambda x: (x * kernel(weight)).sum())(x)
        torch.testing.assert_close(found, torch.softmax(weight, 1).detach())


def test_tensors_that_functions_hold_keep_their_gradients():
    kernel = kernels.fresh(kernels.with_epilogue)
    x, bias = torch.randn(6), torch.randn(6, requires_grad=True)

    def add_bias(acc: torch.Tensor, tile: Any) -> torch.Tensor:
        return acc + bias[tile]

    for _ in range(2):
        (found,) = torch.autograd.grad(kernel(x, add_bias).sum(), bias)
        torch.testing.assert_close(found, torch.ones(6))


def test_operators_of_derived_kernels_have_names_of_their_own():
    """The backward of an operator, and the derived kernel, an operator where torch traces it."""
    kernel = kernels.fresh(kernels.softmax)
    x = torch.randn(4, 8)
    name = kernel.operator((x,)).gradient.definition._name
    backward = kernel._derived(kernel.bind((x,))).kernel
    other = backward.operator((x, torch.softmax(x, 1))).definition._name
    assert name != other


@pytest.mark.parametrize("is_derived", [False, True], ids=["registered", "derived"])
def test_numbers_of_numpy_are_numbers(is_derived: bool):
    kernel = kernels.fresh(kernels.scale)
    if not is_derived:
        kernel.register_backward(
            lambda ctx, grad: (grad * ctx.factor, None),
            setup_context=lambda ctx, args, result: setattr(ctx, "factor", args[1]),
        )
    x = torch.randn(6, requires_grad=True)
    for factor in (numpy.float32(2.0), numpy.float32(3.0), numpy.int64(4), 5.0):
        out = kernel(x, factor)
        torch.testing.assert_close(out, x * float(factor))
        (found,) = torch.autograd.grad(out.sum(), x)
        torch.testing.assert_close(found, torch.full((6,), float(factor)))
