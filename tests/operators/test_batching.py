"""``torch.vmap`` of kernels: one launch for a batch where that can be, else one call each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from examples import attention, matmul, rms_norm, softmax
from tests.examples.case import Case
from tests.examples.cases import EXAMPLES
from tests.examples.ports.ports import PORTS
from tilesmith.exc import NoOperator
from tilesmith.jit.kernel import Kernel

MANY = 13


def gram(x: torch.Tensor, scale: float, shift: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums by atomics into cleared memory, next to a filled tensor and a view of an argument."""
    flat = x.reshape(-1)
    total = torch.zeros([x.size(1)], dtype=x.dtype, device=x.device)
    shifted = torch.full([x.size(0) * x.size(1)], 7.0, dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(total, [slice(None)], (x[tile, :] * scale).sum(0))
    for tile in hl.tile(x.size(0) * x.size(1) - shift):
        shifted[tile] = flat[tile] + shift
    return total, shifted


def exact_gram(x: torch.Tensor, scale: float, shift: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.double()
    shifted = torch.full([x.numel()], 7.0, dtype=torch.float64)
    shifted[: x.numel() - shift] = x.reshape(-1)[: x.numel() - shift] + shift
    return (x * scale).sum(0), shifted


@helion.kernel(ignore_warnings=[helion.exc.TensorOperationInWrapper])
def mean_of_squares(x: torch.Tensor) -> torch.Tensor:
    rows = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        rows[tile] = (x[tile, :] * x[tile, :]).sum(1)
    return rows.mean()


@helion.kernel
def double_in_place(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile]
        x[tile] = 2 * x[tile]
    return out


@helion.kernel(static_shapes=False)
def row_sums(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, :].sum(1)
    return out


@pytest.fixture
def times_run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, Callable[[], Any]], int]:
    """How often a call runs a kernel for one element, or its derived backward."""
    runs: list[Any] = []
    for name in ("call_plainly", "run_backward"):
        original = getattr(Kernel, name)

        def noted(self: Any, *args: Any, original: Any = original) -> Any:
            runs.append(self)
            return original(self, *args)

        monkeypatch.setattr(Kernel, name, noted)

    def count(kernel: Any, call: Callable[[], Any]) -> int:
        runs.clear()
        call()
        return sum(one is kernel for one in runs)

    return count


def batched_kernels(kernel: Any) -> list[Any]:
    return list(kernel._in_graphs.kernel.batched._kernels.values())


@pytest.mark.parametrize("size", [0, 1, MANY])
@pytest.mark.parametrize("shape", [(1, 1), (31, 33), (32, 64)])
def test_a_batch_of_rows(size: int, shape: tuple[int, int]):
    x = torch.randn(size, *shape)
    found = torch.vmap(softmax.softmax)(x)
    torch.testing.assert_close(found.double(), torch.softmax(x.double(), -1), rtol=1e-5, atol=1e-7)


def test_a_batch_is_one_launch(times_run: Any):
    x = torch.randn(MANY, 8, 16)
    torch.vmap(softmax.softmax)(x)
    assert times_run(softmax.softmax, lambda: torch.vmap(softmax.softmax)(x)) == 0
    assert len(batched_kernels(softmax.softmax)[0]._bound_kernels) > 0


def test_dimensions_in_any_place():
    x, w = torch.randn(8, MANY, 16), torch.randn(16, 5, MANY)
    found = torch.vmap(matmul.matmul, in_dims=(1, 2), out_dims=2)(x, w)
    exact = torch.einsum("mbk,knb->mnb", x.double(), w.double())
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)


def test_what_is_the_same_for_all_is_not_copied():
    x, w = torch.randn(MANY, 8, 16), torch.randn(16, 4)
    found = torch.vmap(matmul.matmul, in_dims=(0, None))(x, w)
    torch.testing.assert_close(found.double(), x.double() @ w.double(), rtol=1e-5, atol=1e-5)
    found = torch.vmap(matmul.matmul, in_dims=(None, 0))(w.T.contiguous(), x.mT.contiguous())
    torch.testing.assert_close(found.double(), w.T.double() @ x.mT.double(), rtol=1e-5, atol=1e-5)


def test_vmap_in_vmap_is_one_launch(times_run: Any):
    x, w = torch.randn(3, 5, 8, 16), torch.randn(5, 16, 4)
    call = torch.vmap(torch.vmap(matmul.matmul), in_dims=(0, None))
    torch.testing.assert_close(call(x, w).double(), x.double() @ w.double(), rtol=1e-5, atol=1e-5)
    assert times_run(matmul.matmul, lambda: call(x, w)) == 0


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("size", [1, 3])
def test_host_tensors_are_made_for_the_batch(static: bool, size: int):
    kernel = helion.kernel(gram, static_shapes=static)
    x = torch.randn(size, 17, 5)
    found = torch.vmap(lambda x: kernel(x, 0.5, 3))(x)
    for one, *pair in zip(x, *found):
        for actual, exact in zip(pair, exact_gram(one, 0.5, 3)):
            torch.testing.assert_close(actual.double(), exact, rtol=1e-5, atol=1e-6)
    assert batched_kernels(kernel)


def test_other_numbers_are_not_those_of_the_first_call():
    kernel = helion.kernel(gram)
    x = torch.randn(2, 6, 4)
    for scale, shift in ((0.5, 1), (2.0, 1), (2.0, 3)):
        total, shifted = torch.vmap(kernel, in_dims=(0, None, None))(x, scale, shift)
        torch.testing.assert_close(total, (x * scale).sum(1))
        torch.testing.assert_close(shifted[:, :-shift], (x + shift).reshape(2, -1)[:, :-shift])


def test_runtime_sizes_share_code():
    for shape in ((2, 5, 7), (3, 9, 11), (4, 6, 20)):
        x = torch.randn(shape)
        torch.testing.assert_close(torch.vmap(row_sums)(x), x.sum(-1))
    assert len(batched_kernels(row_sums)) == 1


def test_what_host_code_computes_is_computed_for_each(times_run: Any):
    x = torch.randn(MANY, 4, 8)
    found = torch.vmap(mean_of_squares)(x)
    torch.testing.assert_close(found, (x * x).sum(-1).mean(-1))
    assert times_run(mean_of_squares, lambda: torch.vmap(mean_of_squares)(x)) == MANY


def test_what_is_written_is_written_for_each():
    x = torch.randn(3, 4, 8)
    before = x.clone()
    torch.testing.assert_close(torch.vmap(double_in_place)(x), before)
    torch.testing.assert_close(x, 2 * before)


@pytest.mark.parametrize("size", [1, MANY])
def test_gradients_of_a_batch(size: int, times_run: Any):
    x = torch.randn(size, 6, 8, dtype=torch.float64, requires_grad=True)
    w = torch.randn(8, dtype=torch.float64, requires_grad=True)

    def ours() -> Any:
        out = torch.vmap(lambda x: rms_norm.rms_norm(x, w, 1e-5)[0])(x)
        return torch.autograd.grad((out**3).sum(), (x, w))

    out = torch.nn.functional.rms_norm(x, (8,), w, 1e-5)
    exact = torch.autograd.grad((out**3).sum(), (x, w))
    torch.testing.assert_close(ours(), exact)
    assert times_run(rms_norm.rms_norm, ours) == 0


def test_gradients_of_samples(times_run: Any):
    x = torch.randn(MANY, 6, 8, dtype=torch.float64)
    w = torch.randn(8, dtype=torch.float64)

    def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (rms_norm.rms_norm(x, w, 1e-5)[0] ** 3).sum()

    def exact(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (torch.nn.functional.rms_norm(x, (8,), w, 1e-5) ** 3).sum()

    samples = [torch.func.vmap(torch.func.grad(one), in_dims=(None, 0)) for one in (loss, exact)]
    torch.testing.assert_close(samples[0](w, x), samples[1](w, x))
    assert times_run(rms_norm.rms_norm, lambda: samples[0](w, x)) == 0
    nested = [torch.func.vmap(one, in_dims=(None, 0)) for one in samples]
    two = x[:12].reshape(3, 4, 6, 8)
    torch.testing.assert_close(nested[0](w, two), nested[1](w, two))


def test_a_registered_gradient_is_asked_for_each():
    @helion.kernel
    def scale(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for tile in hl.tile(x.size()):
            out[tile] = 3 * x[tile]
        return out

    @scale.register_backward
    def back(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return 5 * grad  # not the derivative: so it is seen who is asked

    x = torch.randn(4, 3, requires_grad=True)
    torch.vmap(scale)(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 5.0))


def test_inside_of_graphs():
    x = torch.randn(5, 4, 8)
    for dynamic in (False, True):
        compiled = torch.compile(
            lambda x: torch.vmap(softmax.softmax)(x) * 2,
            fullgraph=True,
            dynamic=dynamic,
            backend="aot_eager",
        )
        torch.testing.assert_close(compiled(x), torch.softmax(x, -1) * 2)
        torch.testing.assert_close(compiled(x[:3, :3]), torch.softmax(x[:3, :3], -1) * 2)


def test_code_for_a_gpu():
    q, k, v = (torch.randn(2, 3, 16, 16) for _ in range(3))
    torch.vmap(attention.attention)(q, k, v)
    (kernel,) = batched_kernels(attention.attention)[-1:]
    args = tuple(torch.randn(2, 3, 16, 16, dtype=torch.float16) for _ in range(4))
    assert "tl.dot" in kernel.bind(args, target="cuda:90").to_code()


LOOPS = {
    "grouped_gemm_persistent": "host code looks at the device",
    **dict.fromkeys(
        (
            "layer_norm_bwd", "layer_norm_bwd_no_bias", "rms_norm_bwd", "cross_entropy",
            "kl_div_sum", "kl_div_mean", "kl_div_batchmean", "jsd_low", "jsd_mixed",
            "jsd_of_logits", "recomputing_linear_jsd",
        ),
        "host code computes",
    ),
    **dict.fromkeys(("split_k_barrier", "compaction"), "programs wait for each other"),
    **dict.fromkeys(
        ("transposed_channel_decay", "gated_delta_rule", "gated_delta_rule_continued"),
        "a number that device code makes gets an axis",
    ),
    "long_sum_manual": "a block size that host code gives to a range",
}  # fmt: skip
"""Kernels of the gallery that are called for each element, and why."""
QUICK = ("add", "matmul", "attention", "grouped_gemm", "jagged_softmax", "cross_entropy")


def _gallery() -> list[Any]:
    return [
        pytest.param(case, marks=() if case.name in QUICK else pytest.mark.full, id=str(case))
        for case in (*EXAMPLES, *PORTS)
    ]


@pytest.mark.parametrize("case", _gallery())
def test_gallery(case: Case):
    dtype = case.dtypes[0]
    args = case.kernel.normalize_args(*case.make_inputs(case.sizes[0], dtype, "cpu"))
    try:
        operator = case.kernel.operator(args)
    except NoOperator:
        return
    outline, leaves = operator.outline, operator.leaves(args)
    is_batched = [
        isinstance(x, torch.Tensor) and x.is_floating_point() and x.element_size() > 1
        for x in leaves
    ]
    if outline.written or outline.num_views or not any(is_batched):
        return
    given = [
        torch.stack([x, x * 0.875, x * 0.75]) if batched else x
        for x, batched in zip(leaves, is_batched)
    ]
    dims = tuple(0 if batched else None for batched in is_batched)
    found = torch.vmap(operator.definition, in_dims=dims)(*given)
    found = [found] if outline.num_new == 1 else found
    for place in range(3):
        one = operator.definition(
            *(x[place] if batched else x for x, batched in zip(given, is_batched))
        )
        for actual, exact in zip(found, [one] if outline.num_new == 1 else one):
            torch.testing.assert_close(actual[place], exact, equal_nan=True)
    plans = case.kernel._in_graphs.kernel.batched._plans.values()
    is_loop = any(plan is None or not plan.checks[False] for plan in plans)
    assert is_loop == (case.name in LOOPS)
