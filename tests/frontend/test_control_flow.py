"""The runtime side of rewritten code: what is known just runs, everything else becomes an op."""

from __future__ import annotations

import inspect
import re

import pytest
import torch

import tilesmith.language as hl
from tests.frontend.traced import lines_of, open_tracer, trace_of
from tilesmith import exc
from tilesmith.dtypes import I32
from tilesmith.frontend.control_flow import STATIC_LOOP_LIMIT
from tilesmith.frontend.device_loops import RUNTIME_FUNCTIONS
from tilesmith.frontend.source import functionalise
from tilesmith.frontend.tracing.emission import full


def test_every_function_that_rewriting_writes_is_there_and_no_other() -> None:
    text = inspect.getsource(functionalise)
    written = set(re.findall(r'(?:_runtime_call|self\._run)\(\s*"(\w+)"', text))
    written |= {*re.findall(r'"(all_of|any_of|loop_variable|Unbound)"', text), functionalise.UPDATED, "until"}
    assert set(vars(RUNTIME_FUNCTIONS)) == written


def test_static_operands_decide_without_an_op() -> None:
    with open_tracer() as tracer:
        device = full(1, I32)
        assert RUNTIME_FUNCTIONS.all_of(lambda: device, lambda: False) is False
        assert RUNTIME_FUNCTIONS.any_of(lambda: device, lambda: 5) == 5
        assert RUNTIME_FUNCTIONS.all_of(lambda: 1, lambda: "last") == "last"
        assert RUNTIME_FUNCTIONS.compare_chain(("Lt", "LtE"), 1, 2, 2) is True
        assert RUNTIME_FUNCTIONS.negate(0) is True
        tests = [op.fn for op in tracer.take_region(()).ops if op.name == "elementwise"]  # type: ignore[attr-defined]
    assert tests == ["ne", "ne"]


def static_branch(x, flag: bool):
    for t in hl.tile(x.size(0)):
        if flag:
            x[t] = 1
        else:
            x[t] = 2


def dynamic_branch(x, n):
    for t in hl.tile(x.size(0)):
        y = x[t]
        if n > 3:
            y = y + 1
        x[t] = y


def test_a_known_condition_leaves_one_arm_and_another_one_both() -> None:
    assert not any("= if(" in line for line in lines_of(static_branch, torch.zeros(4), True))
    lines = lines_of(dynamic_branch, torch.zeros(4), 5)
    (branch,) = [line for line in lines if "if(" in line]
    assert branch.startswith("%y")
    assert [line.partition("(")[0] for line in lines].count("yield") == 3


def counted(x):
    for t in hl.tile(x.size(0)):
        turns = 0
        while turns < 3:
            x[t] = turns
            turns += 1


def endless(x):
    for t in hl.tile(x.size(0)):
        while True:
            x[t] = 0


def test_a_while_of_known_turns_is_unrolled_up_to_a_limit() -> None:
    lines = lines_of(counted, torch.zeros(4))
    assert sum(line.startswith("store") for line in lines) == 3
    with pytest.raises(exc.StaticLoopTooLong, match=str(STATIC_LOOP_LIMIT)):
        trace_of(endless, torch.zeros(4))


def waits(x, lock):
    for _ in hl.grid(x.size(0)):
        while hl.atomic_cas(lock, [0], 0, 1) != 0:
            pass


def test_a_condition_that_writes_stands_in_the_loop_only() -> None:
    lines = lines_of(waits, torch.zeros(4), torch.zeros(1, dtype=torch.int32))
    swaps = [p for p, line in enumerate(lines) if "= atomic" in line]
    (loop,) = [p for p, line in enumerate(lines) if line.startswith("while(")]
    assert len(swaps) == 1
    assert loop < swaps[0]


def swapped(lock, turns: int) -> bool:
    hl.atomic_cas(lock, [0], 0, 1)
    return turns < 2


def swaps_twice(x, lock):
    for _ in hl.grid(x.size(0)):
        turns = 0
        while swapped(lock, turns):
            turns += 1


def test_a_known_condition_writes_once_for_each_test() -> None:
    lines = lines_of(swaps_twice, torch.zeros(4), torch.zeros(1, dtype=torch.int32))
    assert sum("= atomic" in line for line in lines) == 3


def carries_a_list(x):
    for t in hl.tile(x.size(0)):
        parts = [hl.zeros([t]), hl.zeros([t])]
        for _ in hl.grid(4):
            parts[0] = parts[0] + 1
        x[t] = parts[0] + parts[1]


def test_lists_are_carried_item_by_item() -> None:
    lines = lines_of(carries_a_list, torch.zeros(4))
    (loop,) = [line for line in lines if "= loop(" in line]
    assert loop.startswith("%parts_0")
    assert "%parts_1" in loop.partition(" = ")[0]
