"""The object under the decorator: calls, binding, configs, keys, settings, threads."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc
from tilesmith.compiler import specialization

X = torch.arange(1, 14, dtype=torch.float32)


def body(x, scale=2.0, shift=1):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * scale + shift
    return out


def fresh(**options) -> helion.Kernel:
    return helion.kernel(body, **options)


def test_defaults_and_keywords(traces: list[str]) -> None:
    kernel = fresh()
    assert torch.equal(kernel(X), X * 2 + 1)
    assert torch.equal(kernel(X, 3.0), X * 3 + 1)
    assert torch.equal(kernel(X, shift=4), X * 2 + 4)
    assert torch.equal(kernel(shift=4, x=X, scale=0.5), X * 0.5 + 4)
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((X, 1.0, 2, 3), {}, "Too many arguments passed to the kernel, expected: 3 got: 4"),
        ((), {}, "x"),
        ((X,), {"slope": 1}, "slope"),
        ((X, 1.0), {"scale": 2.0}, "scale"),
    ],
)
def test_wrong_arguments(args, kwargs, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        fresh()(*args, **kwargs)


def test_no_tensor_at_all() -> None:
    @helion.kernel
    def lonely(n):
        out = torch.empty([n])
        for t in hl.tile(n):
            out[t] = t.index
        return out

    with pytest.raises(exc.NoTensorArgs):
        lonely(3)
    device = torch.device("cpu")

    @helion.kernel
    def placed(n, device):
        out = torch.empty([n], device=device)
        for t in hl.tile(n):
            out[t] = t.index
        return out

    assert torch.equal(placed(3, device), torch.arange(3.0))


def test_bind_finds_the_same_kernel(traces: list[str]) -> None:
    kernel = fresh()
    bound = kernel.bind((X,))
    assert kernel.bind((X + 1, 5.0)) is bound
    assert kernel.bind([X.clone()]) is bound
    assert kernel.bind((X.double(),)) is not bound
    assert kernel.bind((torch.ones(26)[::2],)) is not bound
    assert len(traces) == 3


def test_a_target_has_its_own_kernels() -> None:
    kernel = fresh()
    here, hopper = kernel.bind((X,)), kernel.bind((X,), target="cuda:90")
    assert here is not hopper
    assert kernel.bind((X,), target="cuda:90") is hopper
    assert hopper.target.is_gpu


def test_reset_forgets(traces: list[str]) -> None:
    kernel = fresh()
    kernel(X)
    bound = kernel.bind((X,))
    kernel.reset()
    assert kernel.bind((X,)) is not bound
    assert torch.equal(kernel(X), X * 2 + 1)
    assert len(traces) == 2


def test_user_key_separates_kernels(traces: list[str]) -> None:
    kernel = fresh(key=lambda x, scale, shift: shift > 10)
    for shift in (1, 2, 11, 12, 3):
        assert torch.equal(kernel(X, 2.0, shift), X * 2 + shift)
    assert len(traces) == 2


def test_user_key_joins_the_rest_of_the_key(traces: list[str]) -> None:
    kernel = fresh(key=lambda *args: 0)
    assert torch.equal(kernel(X), X * 2 + 1)
    assert torch.equal(kernel(X[:5].clone()), X[:5] * 2 + 1)
    assert len(traces) == 2


def test_the_config_of_the_decorator_is_used() -> None:
    config = helion.Config(block_sizes=[4])
    bound = fresh(config=config).bind((X,))
    assert bound.configs == [config]
    assert "tl.constexpr(4)" in bound.to_triton_code()
    assert torch.equal(bound(X), X * 2 + 1)


def test_configs_may_be_dictionaries() -> None:
    kernel = fresh(config={"block_sizes": [8]})
    assert kernel.configs == [helion.Config(block_sizes=[8])]
    assert torch.equal(kernel(X), X * 2 + 1)


def test_several_configs() -> None:
    configs = [helion.Config(block_sizes=[4]), helion.Config(block_sizes=[8])]
    kernel = fresh(configs=configs)
    assert kernel.configs == configs
    assert torch.equal(kernel(X), X * 2 + 1)
    with pytest.raises(exc.ConflictingArguments):
        fresh(config=configs[0], configs=configs)


def test_a_wrong_config_is_refused_when_used() -> None:
    kernel = fresh(config=helion.Config(block_sizes=[3]))
    with pytest.raises(exc.InvalidConfig, match="block_sizes"):
        kernel(X)


def test_set_config_is_used_from_then_on() -> None:
    bound = fresh().bind((X,))
    bound.set_config(helion.Config(block_sizes=[2]))
    assert "tl.constexpr(2)" in bound.to_triton_code()
    assert torch.equal(bound(X), X * 2 + 1)


def test_run_ref_is_the_interpreter() -> None:
    bound = fresh().bind((X,))
    assert torch.equal(bound.run_ref(X, 3.0), X * 3 + 1)


def test_settings_are_keywords_of_the_decorator() -> None:
    kernel = fresh(static_shapes=False, dot_precision="tf32")
    assert kernel.settings.static_shapes is False
    assert kernel.settings.dot_precision == "tf32"
    whole = helion.Settings(static_shapes=False)
    assert fresh(settings=whole).settings == whole
    assert fresh(settings=fresh(settings=whole).settings).settings == whole
    with pytest.raises(exc.ConflictingArguments):
        fresh(settings=whole, static_shapes=True)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(TypeError, match="statik_shapes"):
        fresh(statik_shapes=True)


@helion.kernel
def product(x, y, precision_of=None):
    out = x.new_empty([x.size(0), y.size(1)])
    for t, u in hl.tile(out.size()):
        out[t, u] = hl.dot(x[t, :], y[:, u])
    return out


@pytest.mark.parametrize("given", ["ieee", "tf32", "tf32x3", "high"])
def test_dot_precision_reaches_the_code(given: str) -> None:
    kernel = helion.kernel(product.fn, dot_precision=given)  # pyright: ignore[reportArgumentType, reportCallIssue]
    precision = "tf32x3" if given == "high" else given
    x = torch.randn(16, 16)
    code = kernel.bind((x, x), target="cuda:90").to_triton_code()
    assert f"input_precision='{precision}'" in code.replace('"', "'")


def test_environment_sets_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILESMITH_STATIC_SHAPES", "0")
    assert fresh().settings.static_shapes is False
    monkeypatch.setenv("TILESMITH_STATIC_SHAPES", "1")
    assert fresh().settings.static_shapes is True


def test_decorated_function_keeps_its_identity() -> None:
    kernel: Any = fresh()
    assert kernel.__name__ == kernel.name == "body"
    assert kernel.__wrapped__ is kernel.fn is body
    assert "for t in hl.tile" in kernel.kernel_source()
    assert list(kernel.signature.parameters) == ["x", "scale", "shift"]
    for name in ("__globals__", "__code__", "__defaults__", "__kwdefaults__"):
        assert getattr(kernel, name) is getattr(body, name)


@helion.kernel
def halved(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size()):
        out[t] = x[t] / 2
    return out


def test_a_kernel_can_become_an_operator_of_torch() -> None:
    operator: Any = torch.library.custom_op("tilesmith_tests::halved", halved, mutates_args=())
    operator.register_fake(torch.empty_like)
    x = torch.randn(5, 3)
    compiled = torch.compile(lambda x: operator(x) + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), x / 2 + 1)
    assert torch.equal(torch.func.functionalize(operator)(x), x / 2)
    with FakeTensorMode() as mode:
        assert operator(mode.from_tensor(x)).shape == x.shape

    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return operator(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, *gradients):
            return operator(gradients[0])

    gradient = torch.func.grad(lambda x: Halved.apply(x).sum())(x)
    assert torch.equal(gradient, torch.full_like(x, 0.5))


def test_a_kernel_in_device_code_is_refused() -> None:
    inner = fresh()

    @helion.kernel
    def outer(x, fn):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = fn(x[t])
        return out

    with pytest.raises(exc.NestedKernelCallsNotSupported):
        outer(X, lambda value: inner(value) + 1)


def test_ambient_autocast_changes_nothing() -> None:
    x = torch.randn(16, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = helion.kernel(product.fn)(x, x)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, (x.double() @ x.double()).float())


def test_requires_grad_and_inference_mode() -> None:
    kernel = fresh(missing_gradient="ignore")
    x = X.clone().requires_grad_()
    result = kernel(x)
    assert torch.equal(result, X * 2 + 1)
    assert not result.requires_grad
    with torch.inference_mode():
        assert torch.equal(kernel(X.clone()), X * 2 + 1)
    parameter = torch.nn.Parameter(X.clone(), requires_grad=False)
    assert torch.equal(kernel(parameter), X * 2 + 1)


def test_concurrent_first_calls_trace_once(traces: list[str], monkeypatch) -> None:
    kernel = fresh()
    slow = specialization.trace_kernel

    def slowly(request):
        time.sleep(0.05)
        return slow(request)

    monkeypatch.setattr(specialization, "trace_kernel", slowly)
    results: list[torch.Tensor | Exception] = [torch.empty(0)] * 8
    barrier = threading.Barrier(8)

    def call(i: int) -> None:
        barrier.wait()
        try:
            results[i] = kernel(X, float(i))
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, result in enumerate(results):
        assert isinstance(result, torch.Tensor), result
        assert torch.equal(result, X * i + 1)
    assert len(traces) == 1


def test_tensors_are_not_kept_alive() -> None:
    import gc
    import weakref

    kernel = fresh()
    x = X.clone()
    kernel(x)
    reference = weakref.ref(x)
    del x
    gc.collect()
    assert reference() is None
    # Binding again for another block size needs no argument of the first call.
    bound = kernel.bind((X,))
    assert torch.equal(bound.compile_config({"block_sizes": [4]})(X), X * 2 + 1)
