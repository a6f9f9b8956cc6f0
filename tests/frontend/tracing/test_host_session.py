"""Numbers of host code that are no constants: they keep their mark and say where they come from."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

from tilesmith import exc
from tilesmith.autotuner import IntegerFragment
from tilesmith.frontend.tracing.host_session import (
    BlockSizeInt,
    HostSession,
    RuntimeFloat,
    RuntimeInt,
)


def argument(position: int) -> Callable[..., Any]:
    return lambda *args: args[position]


BINARY = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow)


@pytest.mark.parametrize("function", BINARY)
def test_arithmetic_keeps_the_mark_and_can_be_repeated_for_other_arguments(
    function: Callable[[Any, Any], Any],
) -> None:
    left, right = RuntimeInt.make(7, argument(0)), RuntimeInt.make(2, argument(1))
    for found, again in (
        (function(left, right), function(5, 3)),
        (function(left, 3), function(5, 3)),
        (function(9, right), function(9, 3)),
    ):
        assert isinstance(found, RuntimeInt)
        assert found.origin is not None
        assert found.origin(5, 3) == again


def test_division_gives_a_marked_float_and_comparisons_plain_bools() -> None:
    number = RuntimeInt.make(7, argument(0))
    assert isinstance(number / 2, RuntimeFloat)
    assert isinstance(RuntimeFloat(1.5) * 2, RuntimeFloat)
    assert (number < 8) is True
    assert hash(number) == hash(7)
    assert isinstance(-number, RuntimeInt)


def test_what_is_not_of_the_arguments_alone_has_no_origin() -> None:
    total = RuntimeInt.make(7, argument(0)) + RuntimeInt.make(2)
    assert isinstance(total, RuntimeInt)
    assert total.origin is None


USES: list[Callable[[Any], Any]] = [
    lambda block: block + 1,
    lambda block: 1 + block,
    lambda block: block < 64,
    int,
    bool,
    lambda block: RuntimeInt.make(4) * block,
    lambda block: RuntimeInt.make(4) < block,
]


@pytest.mark.parametrize("use", USES)
def test_looking_at_a_block_size_is_noticed(use: Callable[[Any], Any]) -> None:
    session = HostSession(block_sizes={0: 16})
    block = session.register_block_size(1, 64)
    assert session.observed_slots == set()
    use(block)
    assert session.observed_slots == {0}


def test_handing_a_block_size_on_is_no_look() -> None:
    session = HostSession()
    block = session.register_block_size(64, 256)
    same = {block: [block]}[block][0]
    assert session.observed_slots == set()
    assert isinstance(same, BlockSizeInt)
    assert session.block_size(0) == 64
    assert session.block_size(1) == 32


def test_specialising_remembers_how_to_recompute_the_value() -> None:
    session = HostSession()
    sizes = (RuntimeInt.make(12, argument(1), axis=(7, "size", 0)), 5)
    assert session.specialize(sizes) == (12, 5)
    assert all(type(size) is int for size in session.specialize(sizes))
    origin, value = session.specialized[0]
    assert (origin("x", 30), value) == (30, 12)
    assert session.constant_sizes.is_constant("x.size(0)", 12, (7, "size", 0))
    assert not session.constant_sizes.is_constant("x.size(1)", 12, (7, "size", 1)), (
        "equal, but not it"
    )


@pytest.mark.parametrize("value", [1.5, True, "n", RuntimeInt.make(3)])
def test_only_integers_of_the_arguments_can_be_specialised(value: Any) -> None:
    with pytest.raises(exc.SpecializeArgType):
        HostSession().specialize(value)


def test_tunables_take_the_config_s_value_or_their_default() -> None:
    fragment = IntegerFragment(1, 8, 3)
    assert HostSession().register_tunable("k", fragment) == 3
    session = HostSession(tunables={"k": 5})
    assert session.register_tunable("k", fragment) == 5
    assert session.tunable_values == {"k": 5}
    assert session.is_used
