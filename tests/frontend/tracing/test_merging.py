"""Names where control flow meets: containers go through item by item, the rest must agree."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frontend.traced import open_tracer
from tilesmith import exc
from tilesmith.dtypes import F32, I32
from tilesmith.frontend.tracing.changed_numbers import NumberChangedError
from tilesmith.frontend.tracing.emission import full
from tilesmith.frontend.tracing.merging import (
    Unbound,
    check_captures,
    check_others,
    identifier_of,
    joined_arms,
    merge_carried,
    merges_arms,
    paired,
    spread,
    unmerged_value,
)
from tilesmith.ir.types import Dim


def test_containers_are_spread_and_put_together_again() -> None:
    state = (1, [2, {"a": 3}], (4,))
    items = spread(["n", "parts", "pair"], state)
    assert items.names == ("n", "parts[0]", "parts[1]['a']", "pair[0]")
    assert items.leaves == (1, 2, 3, 4)
    assert items.joined("pqrs") == ("p", ["q", {"a": "r"}], ("s",))


def test_a_function_of_containers_becomes_one_of_their_items() -> None:
    items = spread(["parts"], ([1, 2],))

    def body(item: int, parts: list[int]) -> tuple[Any, ...]:
        return ([parts[0] + item, parts[1]],)

    assert items.on_leaves(body)(10, 1, 2) == (11, 2)


def test_both_arms_give_items_of_one_form() -> None:
    pairs = paired("xs", [1, 2], [3, 4])
    assert pairs == [("xs[0]", 1, 3), ("xs[1]", 2, 4)]
    assert joined_arms(([1, 2],), ([3, 4],), ["p", "q"]) == (["p", "q"],)
    with pytest.raises(exc.CantCombineTypesInControlFlow, match="a list of 2"):
        paired("xs", [1, 2], [3])


def test_a_name_bound_in_one_arm_only_has_no_value_after() -> None:
    unbound = Unbound("y")
    assert paired("y", [1], unbound) == [("y", [1], unbound)]
    assert not merges_arms("y", 1, unbound)
    after = unmerged_value("y", 1, unbound)
    with pytest.raises(exc.UnboundInBranch, match="only one branch"):
        after + 1
    with pytest.raises(exc.UsedBeforeAssignment):
        unbound.shape  # noqa: B018


def test_carried_values_keep_their_type() -> None:
    with open_tracer() as tracer:
        tracer.new_block("t", slot=0)
        before = full(0.0, F32, (Dim.of("t"),))
        same, number = full(1.0, F32, (Dim.of("t"),)), 2
        assert merge_carried(["a"], (before,), [before], (same,)) == [(0, same)]
        ((_, spread_number),) = merge_carried(["a"], (before,), [before], (number,))
        assert spread_number.tile == before.tile
        with pytest.raises(exc.ControlFlowTensorMismatch):
            merge_carried(["a"], (before,), [before], (full(0, I32, (Dim.of("t"),)),))
        with pytest.raises(exc.CantCombineTypesInControlFlow):
            merge_carried(["a"], (full(0, I32),), [None], (2.5,))
        with pytest.raises(NumberChangedError) as changed:
            merge_carried(["n"], (1,), [1], (2,))
        assert (changed.value.position, changed.value.now) == (0, 2)
        with pytest.raises(exc.NumberChangedInControlFlow, match="start with a number"):
            merge_carried(["n"], (True,), [True], (2,))


def test_arms_merge_what_is_computed_and_refuse_what_differs() -> None:
    with open_tracer():
        left, right, whole = full(0.0, F32), full(1.0, F32), full(0, I32)
        assert merges_arms("a", left, right)
        assert not merges_arms("a", left, left)
        assert not merges_arms("a", 3, 3)
        with pytest.raises(exc.ControlFlowTensorMismatch):
            merges_arms("a", left, whole)
        with pytest.raises(exc.NumberChangedInControlFlow):
            merges_arms("a", True, 4)


def test_a_list_changed_by_a_call_is_refused() -> None:
    held: list[int] = [1]
    with (
        pytest.raises(exc.StatementNotSupported, match="a call that changes `held`"),
        check_others({"held": held}, ()),
    ):
        held.append(2)
    with (
        pytest.raises(exc.StatementNotSupported, match="a second name, `other`"),
        check_others({"other": held}, (held,)),
    ):
        pass


def test_a_function_that_captured_what_changes_is_refused() -> None:
    held = [1]

    def reads() -> list[int]:
        return held

    check_captures({"reads": reads}, ([1],))
    with pytest.raises(exc.StatementNotSupported, match="calling `reads`"):
        check_captures({"reads": reads}, (held,))


def test_hints_are_identifiers() -> None:
    assert identifier_of("parts[1]['a']") == "parts_1_a"
