"""Functions that host code calls run once in a first call, though a trace needs what they give."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl

CALLS: list[Any] = []
X = torch.arange(13.0)


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    CALLS.clear()


def count(x: torch.Tensor, times: int = 1) -> int:
    CALLS.append(("count", times))
    return x.size(0) * times


def ones(x: torch.Tensor) -> torch.Tensor:
    CALLS.append("ones")
    return torch.ones_like(x)


def drawn() -> int:
    CALLS.append("drawn")
    return int(torch.randint(0, 1000, (1,)))


def added(x: torch.Tensor) -> int:
    CALLS.append("added")
    x.add_(1)
    return 3


def number() -> int:
    CALLS.append("number")
    return len(CALLS)


def plain(x: torch.Tensor) -> torch.Tensor:
    n = count(x)
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + n
    return out


def several(x: torch.Tensor, times: int) -> torch.Tensor:
    print("several")  # noqa: T201
    n = count(x, times=times)
    y = ones(x)
    total = sum([count(x * 2, i) for i in range(2)])
    out = torch.empty_like(x)
    for t in hl.tile(n // times):
        out[t] = x[t] + n + y[t] + total
    return out


def random(x: torch.Tensor) -> torch.Tensor:
    n = drawn()
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * 0 + n
    return out


def changed(x: torch.Tensor) -> torch.Tensor:
    n = added(x)
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + n
    return out


def left_out(x: torch.Tensor) -> torch.Tensor:
    number()
    n = number()
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * 0 + n
    return out


def printed(x: torch.Tensor) -> torch.Tensor:
    print(count(x))  # noqa: T201
    n = number()
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * 0 + n
    return out


@pytest.mark.parametrize("static_shapes", [True, False])
def test_each_call_calls_once(static_shapes: bool, capsys) -> None:
    kernel = helion.kernel(several, static_shapes=static_shapes)
    expected = [("count", 2), "ones", ("count", 0), ("count", 1)]
    for _ in range(2):
        CALLS.clear()
        assert torch.equal(kernel(X, 2), X + 26 + 1 + 13)
        assert expected == CALLS
        assert capsys.readouterr().out == "several\n"


@pytest.mark.parametrize("static_shapes", [True, False])
def test_other_shapes_are_first_calls_too(static_shapes: bool) -> None:
    kernel = helion.kernel(plain, static_shapes=static_shapes)
    for n in (13, 14):
        CALLS.clear()
        assert torch.equal(kernel(torch.ones(n)), torch.full((n,), n + 1.0))
        assert CALLS == [("count", 1)] or not static_shapes


def test_bound_by_hand_nothing_is_kept() -> None:
    kernel = helion.kernel(plain)
    kernel.bind((X,))
    CALLS.clear()
    assert torch.equal(kernel(X), X + 13)
    assert CALLS == [("count", 1)]


def test_random_numbers_are_drawn_by_the_call() -> None:
    torch.manual_seed(3)
    wanted = [drawn(), drawn()]
    kernel = helion.kernel(random)
    torch.manual_seed(3)
    assert [int(kernel(X)[0]), int(kernel(X)[0])] == wanted


def test_what_changes_tensors_is_called_by_the_call() -> None:
    x = X.clone()
    assert torch.equal(helion.kernel(changed)(x), X + 4)
    assert torch.equal(x, X + 1)


@pytest.mark.parametrize("function", [left_out, printed])
def test_what_other_statements_change_is_seen(function: Any, capsys) -> None:
    # For the trace `number` gave 1; the call's own run sees what the first statement has added.
    assert torch.equal(helion.kernel(function)(X), torch.full_like(X, 3))


def test_remarks_about_code_after_the_loops_are_made(capsys) -> None:
    def after(x: torch.Tensor) -> torch.Tensor:
        n = count(x)
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t] + n
        return out.exp()

    helion.kernel(after)(X)
    assert "TensorOperationInWrapper" in capsys.readouterr().err
    assert CALLS == [("count", 1)]
