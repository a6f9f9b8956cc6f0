"""Lists, tuples and dicts of device values that runtime loops and branches change.

A loop over a list's items once used what the list held before the loop in every turn.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import integers
from tests.host_backends import BACKENDS, on_backend
from tilesmith import exc


@helion.kernel
def running_sum_in_a_list(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        sums = [hl.zeros([t]), hl.zeros([t])]
        for i in range(x.size(1)):
            sums[0] = sums[0] + x[t, i]
            out[t, i] = sums[0]
    return out


@helion.kernel
def sums_in_a_tuple(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        sums = (hl.zeros([t, 1]), hl.zeros([t, 1]))
        for u in hl.tile(x.size(1)):
            sums = (sums[0] + x[t, u].sum(1, keepdim=True), sums[1] + 0.0)
        out[t, :] = (sums[0] + sums[1]).expand(t, x.size(1))
    return out


@helion.kernel
def nested_in_while(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        state: Any = [[hl.zeros([t])], {"turn": hl.zeros([], dtype=torch.int32)}]
        while state[1]["turn"] < x.size(1):
            state[0][0] += x[t, state[1]["turn"]]
            out[t, state[1]["turn"]] = state[0][0]
            state[1]["turn"] = state[1]["turn"] + 1
    return out


@helion.kernel
def chosen_in_a_branch(x: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in hl.grid(x.size(0)):
        parts = [x[i, :], x[i, :]]
        if flags[i] > 0:
            pair = (parts[0], 2)
            parts[1] = parts[1] * 3
        else:
            pair = (-parts[0], 2)
        out[i, :] = parts[1] + pair[0] * pair[1]
    return out


@helion.kernel
def list_that_grows(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        parts = [hl.zeros([t])]
        for i in range(x.size(1)):
            parts.append(x[t, i])
            out[t, i] = parts[0]
    return out


@helion.kernel
def item_updated_in_place(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for t in hl.tile(x.size(0)):
        sums = [hl.zeros([t])]
        for i in range(x.size(1)):
            sums[0].add_(x[t, i])
            out[t, i].add_(sums[0])
    return out


def push(sums: list[Any], value: Any) -> None:
    sums[0] = sums[0] + value


@helion.kernel
def changed_by_a_helper(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        sums = [hl.zeros([t])]
        for i in range(x.size(1)):
            push(sums, x[t, i])
            out[t, i] = sums[0]
    return out


@helion.kernel
def seen_by_another_name(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        sums = [hl.zeros([t])]
        same = sums
        for i in range(x.size(1)):
            sums[0] = sums[0] + x[t, i]
            out[t, i] = same[0]
    return out


@helion.kernel
def captured_before(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        total = hl.zeros([t])
        plus_total = lambda value: total + value  # noqa: B023, E731
        for i in range(x.size(1)):
            total = plus_total(x[t, i])
            out[t, i] = total
    return out


def whole_numbers(rows: int, columns: int) -> torch.Tensor:
    """Their sums are exact."""
    return integers(-8, 9, rows, columns).float()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kernel", [running_sum_in_a_list, nested_in_while, item_updated_in_place])
def test_items_are_carried_from_turn_to_turn(kernel: Any, backend: str) -> None:
    x = whole_numbers(5, 7)
    assert torch.equal(on_backend(kernel, backend)(x), x.cumsum(1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_rebound_tuple_is_carried(backend: str) -> None:
    x = whole_numbers(5, 7)
    assert torch.equal(on_backend(sums_in_a_tuple, backend)(x), x.sum(1, True).expand(5, 7))


@pytest.mark.parametrize("backend", BACKENDS)
def test_items_are_merged_after_a_branch(backend: str) -> None:
    x, flags = whole_numbers(5, 7), torch.tensor([0, 1, 1, 0, 1])
    expected = torch.where(flags[:, None] > 0, x * 5, -x)
    assert torch.equal(on_backend(chosen_in_a_branch, backend)(x, flags), expected)


def test_list_that_a_runtime_loop_makes_longer_is_refused() -> None:
    with pytest.raises(exc.CantCombineTypesInControlFlow, match=r"a list of 1 .* a list of 2"):
        list_that_grows(whole_numbers(5, 7))


@pytest.mark.parametrize("kernel", [changed_by_a_helper, seen_by_another_name])
def test_change_that_turns_would_not_see_is_refused(kernel: Any) -> None:
    with pytest.raises(exc.StatementNotSupported, match=r"chang.* in a runtime loop"):
        kernel(whole_numbers(5, 7))


def test_function_of_a_name_that_is_changed_later_is_refused() -> None:
    with pytest.raises(exc.StatementNotSupported, match=r"calling `plus_total`"):
        captured_before(whole_numbers(5, 7))
