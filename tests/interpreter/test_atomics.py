"""Atomics: every lane takes effect, whether or not elements repeat."""

from __future__ import annotations

from functools import reduce

import pytest
import torch

from tests.interpreter.run_text import in_program, over_tiles, run_text
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.ops.memory import AtomicKind

COMBINE = {
    "add": lambda a, b: a + b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "max": max,
    "min": min,
    "xchg": lambda _, b: b,
}


def test_every_kind_is_tested():
    assert {*COMBINE, "cas"} == {kind.value for kind in AtomicKind}


def update(kind: str, out: torch.Tensor, index: torch.Tensor, value: torch.Tensor, *, used: bool):
    """Run the atomic over tiles of 4; returns the previous values (zeros where unused)."""
    before, name = torch.zeros_like(value), from_torch(out.dtype)
    body = over_tiles(
        f"""
    %to = load(%index, none, [%i]) : i64[m]
    %v = load(%value, none, [%i]) : {name}[m]
    %old = atomic(%out, %v, none, [%to]) {{kind="{kind}"}} : {name}[m]
    {"store(%before, %old, none, [%i])" if used else ""}""",
        len(index),
    )
    arguments = {"out": out, "index": index, "value": value, "before": before}
    run_text(body, arguments, {"m": 4})
    return before


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint32, torch.uint64])
@pytest.mark.parametrize("kind", COMBINE)
@pytest.mark.parametrize("index", [[0, 1, 2, 3, 4], [0, 0, 1, 0, 1], [2, 2, 2, 2, 2, 2, 2]])
def test_atomics_take_effect_in_lane_order(
    kind: str, dtype: torch.dtype, index: list[int], used: bool
):
    start, values = [12, 7, 100, 5, 0], [3, 9, 6, 255, 1, 80, 33][: len(index)]
    expected, previous = list(start), []
    for position, value in zip(index, values):
        previous.append(expected[position])
        expected[position] = COMBINE[kind](expected[position], value)
    out = torch.tensor(start).to(dtype)
    before = update(kind, out, torch.tensor(index), torch.tensor(values).to(dtype), used=used)
    assert out.tolist() == expected
    assert before.tolist() == (previous if used else [0] * len(index))


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64, torch.uint8])
@pytest.mark.parametrize("index", [[0, 1, 2, 3, 4], [0, 0, 1, 0, 1], [2, 2, 2, 2, 2, 2, 2]])
def test_swaps_where_equal_take_effect_in_lane_order(dtype: torch.dtype, index: list[int]):
    start, values = [1, 2, 1, 5, 1], [2, 1, 3, 2, 1, 3, 1][: len(index)]
    wanted = [1, 2, 1, 1, 2, 3, 1][: len(index)]
    expected, previous = list(start), []
    for position, old, new in zip(index, wanted, values):
        previous.append(expected[position])
        if expected[position] == old:
            expected[position] = new
    out, before = torch.tensor(start).to(dtype), torch.zeros(len(index), dtype=dtype)
    name = from_torch(dtype)
    body = over_tiles(
        f"""
    %to = load(%index, none, [%i]) : i64[m]
    %v = load(%value, none, [%i]) : {name}[m]
    %e = load(%wanted, none, [%i]) : {name}[m]
    %old = atomic(%out, %v, none, [%to], expected=%e) {{kind="cas"}} : {name}[m]
    store(%before, %old, none, [%i])""",
        len(index),
    )
    lists = {"value": values, "wanted": wanted}
    arguments = {key: torch.tensor(items).to(dtype) for key, items in lists.items()}
    arguments |= {"out": out, "before": before, "index": torch.tensor(index)}
    run_text(body, arguments, {"m": 4})
    assert out.tolist() == expected
    assert before.tolist() == previous


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_float_sums_of_repeated_elements(dtype: torch.dtype):
    value = torch.tensor([0.5, 0.25, 1.0, 2.0, 4.0, 8.0], dtype=dtype)
    for used in (True, False):
        out = torch.zeros(2, dtype=dtype)
        update("add", out, torch.tensor([1, 1, 0, 1, 1, 0]), value, used=used)
        assert out.tolist() == [9.0, 6.75]


def test_counter_gives_every_lane_another_number():
    out, before = torch.zeros(1, dtype=torch.int32), torch.zeros(9, dtype=torch.int32)
    body = over_tiles(
        """
    %ones = full() {value=1} : i32[m]
    %same = full() {value=0} : i64[m]
    %old = atomic(%out, %ones, none, [%same]) {kind="add"} : i32[m]
    store(%before, %old, none, [%i])""",
        9,
    )
    run_text(body, {"out": out, "before": before}, {"m": 4})
    assert sorted(before.tolist()) == list(range(9))
    assert out.item() == 9


@pytest.mark.parametrize("repeated", [True, False])
def test_masked_lanes_take_no_effect(repeated: bool):
    out, before = torch.zeros(7), torch.full((7,), -1.0)
    where = "full() {value=2}" if repeated else "arange()"
    body = over_tiles(
        f"""
    %limit = full() {{value=3}} : i64[m]
    %mask = elementwise(%i, %limit) {{fn="lt"}} : bool[m]
    %to = {where} : i64[m]
    %v = full() {{value=1.0}} : f32[m]
    %old = atomic(%out, %v, %mask, [%to]) {{kind="add"}} : f32[m]
    store(%before, %old, none, [%i])""",
        7,
    )
    run_text(body, {"out": out, "before": before}, {"m": 7})
    assert out.tolist() == ([0, 0, 3, 0, 0, 0, 0] if repeated else [1, 1, 1, 0, 0, 0, 0])
    assert before.tolist() == ([0, 1, 2, 0, 0, 0, 0] if repeated else [0.0] * 7)


def test_scalar_atomic_accumulates_over_programs():
    out = torch.zeros(1, dtype=torch.int64)
    body = over_tiles('%old = atomic(%out, %begin, none, [%zero]) {kind="add"} : i64[]', 10)
    run_text(body, {"out": out}, {"m": 3})
    assert out.item() == reduce(lambda a, b: a + b, range(0, 10, 3))


def test_atomic_on_no_lanes_does_nothing():
    out = torch.ones(1)
    body = """
    %never = full() {value=false} : bool[]
    %v = full() {value=5.0} : f32[]
    %old = atomic(%out, %v, %never, [%zero]) {kind="add"} : f32[]"""
    run_text(in_program(body), {"out": out}, {})
    assert out.item() == 1.0
