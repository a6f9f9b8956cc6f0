"""Host code runs at every call; what device code takes from it must be what it computes now."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc
from tilesmith.autotuner import BooleanFragment, EnumFragment, IntegerFragment, PowerOfTwoFragment

X = torch.arange(1, 14, dtype=torch.float32)


@helion.kernel
def with_item(x, counts):
    n = int(counts.max().item())
    out = torch.zeros_like(x)
    for t in hl.tile(n):
        out[t] = x[t] * n
    return out


def first(n: int) -> torch.Tensor:
    return torch.where(torch.arange(13) < n, X * n, 0.0)


def test_values_read_from_tensors(traces: list[str]) -> None:
    with_item.reset()
    for n in (5, 8, 13, 1, 0, 7):
        assert torch.equal(with_item(X, torch.tensor([n, 0])), first(n))
    assert len(traces) == 2, "a constant at first, a parameter once it has changed"


@helion.kernel
def with_item_as_constant(x, counts):
    n = int(counts[0].item())
    out = torch.zeros_like(x)
    for t in hl.tile(x.size(0)):
        value = x[t]
        for i in hl.static_range(n):
            value = value + i
        out[t] = value
    return out


def test_values_that_must_be_constants_make_one_trace_each(traces: list[str]) -> None:
    for n in (2, 3, 2, 3):
        result = with_item_as_constant(X, torch.tensor([n]))
        assert torch.equal(result, X + sum(range(n)))
    assert len(set(traces)) == 1
    assert len(traces) <= 4


@helion.kernel
def with_random_seed(x):
    seed = int(torch.randint(0, 1000, ()).item())
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + seed
    return out


def test_values_that_change_at_every_run() -> None:
    for _ in range(4):
        difference = with_random_seed(X) - X
        assert torch.equal(difference, difference[:1].expand(13))


@helion.kernel
def with_views(x, flag):
    view = x.t() if bool(flag.item()) else x
    out = torch.empty_like(x)
    for t, u in hl.tile(x.size()):
        out[t, u] = view[t, u] + 1
    return out


def test_layouts_that_depend_on_data(traces: list[str]) -> None:
    x = torch.randn(7, 7)
    for flag in (True, False, True, False):
        expected = (x.t() if flag else x) + 1
        assert torch.equal(with_views(x, torch.tensor(flag)), expected)
    assert len(traces) == 2


@helion.kernel
def with_optional(x, flag):
    extra = None
    if bool(flag.item()):
        extra = torch.ones_like(x)
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        value = x[t]
        if extra is not None:
            value = value + extra[t]
        out[t] = value
    return out


def test_tensors_that_may_be_none() -> None:
    for flag in (False, True, False, True):
        assert torch.equal(with_optional(X, torch.tensor(flag)), X + int(flag))


@helion.kernel
def with_function_choice(x, flag):
    act = torch.relu if bool(flag.item()) else torch.neg
    kind = torch.float32 if bool(flag.item()) else torch.float16
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = act(x[t].to(kind))
    return out


def test_functions_and_types_that_depend_on_data() -> None:
    x = X / 3 - 2
    assert torch.equal(with_function_choice(x, torch.tensor(True)), torch.relu(x))
    assert torch.equal(with_function_choice(x, torch.tensor(False)), -x.half().float())
    assert torch.equal(with_function_choice(x, torch.tensor(True)), torch.relu(x))


@helion.kernel
def rebinds_its_argument(x, flag):
    if bool(flag.item()):
        x = x[:, ::2]
    out = torch.zeros([x.size(0)], device=x.device)
    for t in hl.tile(x.size(0)):
        out[t] = x[t, :].sum(1)
    return out


def test_an_argument_that_host_code_rebinds() -> None:
    x = torch.arange(21.0).view(3, 7)
    for flag in (True, False, True):
        expected = (x[:, ::2] if flag else x).sum(1)
        assert torch.equal(rebinds_its_argument(x, torch.tensor(flag)), expected)


@helion.kernel
def with_lists(x, n):
    parts = [x * i for i in range(int(n.item()))]
    out = torch.zeros_like(x)
    for t in hl.tile(x.size(0)):
        value = hl.zeros([t])
        for part in parts:
            value = value + part[t]
        out[t] = value
    return out


@pytest.mark.filterwarnings("ignore")
def test_lists_made_by_host_code() -> None:
    for n in (3, 2, 4):
        assert torch.equal(with_lists(X, torch.tensor(n)), X * sum(range(n)))


def test_nan_as_a_captured_number() -> None:
    @helion.kernel
    def fill(x):
        nothing, zero = float("nan"), -0.0
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = torch.where(x[t] > 5, x[t] * zero, nothing)
        return out

    for _ in range(2):
        result = fill(X)
        assert torch.equal(result.isnan(), X <= 5)
        assert result[10].signbit()


@helion.kernel
def partial_sums(x):
    block = hl.register_block_size(4, 64)
    blocks = helion.cdiv(x.size(0), block)
    out = torch.zeros([blocks], device=x.device)
    for t in hl.tile(x.size(0), block_size=block):
        out[t.id] = x[t].sum(0)
    return out


def test_registered_block_sizes_in_host_arithmetic(traces: list[str]) -> None:
    partial_sums.reset()
    bound = partial_sums.bind((X,))
    for block in (4, 8, 16, 4):
        result = bound.compile_config(helion.Config(block_sizes=[block]))(X)
        assert torch.equal(result, torch.stack([part.sum() for part in X.split(block)]))
    assert torch.equal(partial_sums(X).sum(), X.sum())
    (default,) = bound.default_config().block_sizes
    assert len(traces) == 1 + len({4, 8, 16, default}), "one provisional"


@helion.kernel
def with_tunables(x):
    times = hl.register_tunable("times", IntegerFragment(1, 8, 2))
    is_negative = hl.register_tunable("is_negative", BooleanFragment())
    factor = hl.register_tunable("factor", EnumFragment((0.5, 2.0)))
    width = hl.register_tunable("width", PowerOfTwoFragment(1, 16))
    out = torch.empty([width, x.size(0)], device=x.device)
    for t in hl.tile(x.size(0)):
        value = x[t] * factor
        for _ in hl.static_range(times):
            value = value + 1
        if is_negative:
            value = -value
        for row in hl.static_range(width):
            out[row, t] = value
    return out


def tuned(times: Any = 2, is_negative: Any = False, factor=0.5, width: Any = 1) -> torch.Tensor:
    value = X * factor + times
    return (-value if is_negative else value).expand(width, 13)


def test_tunables_come_from_the_config() -> None:
    bound = with_tunables.bind((X,))
    assert torch.equal(with_tunables(X), tuned())
    for values in (
        {"times": 5},
        {"is_negative": True},
        {"factor": 2.0, "width": 4},
        {"times": 1, "is_negative": True, "factor": 2.0, "width": 2},
        {},
    ):
        config = helion.Config(block_sizes=[4], **values)  # pyright: ignore[reportArgumentType]
        assert torch.equal(bound.compile_config(config)(X), tuned(**values))


def test_a_tunable_out_of_range_is_refused() -> None:
    bound = with_tunables.bind((X,))
    with pytest.raises(exc.InvalidConfig):
        bound.compile_config(helion.Config(block_sizes=[4], times=99))  # pyright: ignore[reportCallIssue]


def test_host_code_after_the_loops_runs() -> None:
    @helion.kernel
    def doubled_twice(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t] * 2
        result = out.view(1, -1)
        return {"result": result, "shape": tuple(result.shape)}

    result = doubled_twice(X)
    assert torch.equal(result["result"], X.view(1, -1) * 2)  # pyright: ignore[reportArgumentType]
    assert result["shape"] == (1, 13)


@helion.kernel
def changes_its_argument(x, y):
    x.add_(1)
    y[0] = y[0] * 2
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + y[t]
    return out


@pytest.mark.filterwarnings("ignore")
def test_host_code_changes_its_arguments_once() -> None:
    x, y = X.clone(), X.clone()
    result = changes_its_argument(x, y)
    assert torch.equal(x, X + 1)
    assert y[0] == 2
    assert torch.equal(result, x + y)
    changes_its_argument(x, x)
    assert torch.equal(x[1:], X[1:] + 2)


@helion.kernel
def draws(x):
    noise = torch.rand_like(x)
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + noise[t]
    return out


def test_the_first_call_draws_the_same_random_numbers() -> None:
    for _ in range(2):
        torch.manual_seed(5)
        result = draws(X)
        torch.manual_seed(5)
        assert torch.equal(result, X + torch.rand_like(X))


@helion.kernel
def returns_early(x, n):
    if x.size(0) > 5 or n == 3:
        return "nothing", n
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + n
    return out


def test_host_code_may_return_before_the_loop() -> None:
    result = returns_early(X, 1)
    assert result == ("nothing", 1)
    assert type(result[1]) is int
    assert torch.equal(returns_early(X[:4].clone(), 1), X[:4] + 1)  # pyright: ignore[reportArgumentType]
    assert returns_early(X[:4].clone(), 3) == ("nothing", 3)
    with pytest.raises(exc.NoDeviceLoopsInKernel, match="returns_early"):
        returns_early.bind((X, 1))
