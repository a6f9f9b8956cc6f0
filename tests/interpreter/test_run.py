"""Launching: arguments and sizes, scalars of every kind, and what is refused."""

from __future__ import annotations

import pytest
import torch

from tests.interpreted import run_function
from tests.interpreter.run_text import build, in_program, over_tiles, run_text
from tests.ir_parser import parse_function
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.interpreter.frame import prepare_function
from tilesmith.interpreter.run import run_prepared

COPY = over_tiles("%v = load(%x, none, [%i]) : f32[m]\n store(%out, %v, none, [%i])", 5)


def test_a_prepared_function_runs_many_times_with_other_blocks():
    x, out = torch.arange(5.0), torch.zeros(5)
    prepared = prepare_function(build(COPY, {"x": x, "out": out}, {"m": 4}))
    for block in (1, 4, 5, 16):
        out.zero_()
        run_prepared(prepared, {"x": x, "out": out}, {"m": block})
        assert torch.equal(out, x)


def test_fixed_blocks_have_their_size():
    text = """func @f {
      param %out: tensor<i64[1], strides=[1], alias=0> from "out"
      block m {fixed=16}
      %zero = full() {value=0} : i64[]
      %one = full() {value=1} : i64[]
      grid([%zero], [%one]) {blocks=[""]} (%pid: i64[]) {
        %size = block_size() {block="m"} : i64[]
        store(%out, %size, none, [%zero])
      }
    }"""
    out = torch.zeros(1, dtype=torch.int64)
    run_function(parse_function(text), {"out": out}, {})
    assert out.item() == 16


@pytest.mark.parametrize("size", [0, 1, 7])
def test_runtime_sizes_are_dimensions(size: int):
    text = """func @f {
      param %x: tensor<f32[n], strides=[1], alias=0> from "x"
      param %out: tensor<f32[1], strides=[1], alias=1> from "out"
      param %n: i32[] from "x.size(0)"
      size n {hint=100}
      %zero = full() {value=0} : i32[]
      %one = full() {value=1} : i32[]
      grid([%zero], [%one]) {blocks=[""]} (%pid: i32[]) {
        %i = arange() : i32[n]
        %v = load(%x, none, [%i]) : f32[n]
        %s = reduce(%v) {axis=0, kind="sum"} : f32[]
        store(%out, %s, none, [%zero])
      }
    }"""
    x, out = torch.arange(float(size)), torch.full((1,), -1.0)
    run_function(parse_function(text), {"x": x, "out": out, "n": size}, {"n": size})
    assert out.item() == x.sum().item()


def test_scalar_parameters_have_their_types():
    out = torch.zeros(3, dtype=torch.float64)
    body = in_program("""
    %a = cast(%real) : f64[]
    %b = cast(%whole) : f64[]
    %c = cast(%flag) : f64[]
    %two = full() {value=2} : i64[]
    store(%out, %a, none, [%zero])
    store(%out, %b, none, [%one])
    store(%out, %c, none, [%two])""")
    run_text(body, {"out": out, "real": 0.1, "whole": 2**40, "flag": True}, {})
    assert out.tolist() == [torch.tensor(0.1).double().item(), 2.0**40, 1.0]


def test_scalars_may_come_as_tensors():
    function = build(
        in_program("store(%out, %n, none, [%zero])"),
        {"out": torch.zeros(1, dtype=torch.int64), "n": 1},
        {},
    )
    out = torch.zeros(1, dtype=torch.int64)
    run_function(function, {"out": out, "n": torch.tensor(12)}, {})
    assert out.item() == 12


@pytest.mark.parametrize(
    ("arguments", "sizes", "problem"),
    [
        ({"x": torch.zeros(5)}, {"m": 4}, "no argument was given for 'out'"),
        ({"x": torch.zeros(5), "out": torch.zeros(5)}, {}, "no size was given for 'm'"),
        (
            {"x": torch.zeros(5), "out": torch.zeros(5, 1)},
            {"m": 4},
            "a tensor of torch.float32 of rank 2",
        ),
        ({"x": torch.zeros(5).half(), "out": torch.zeros(5)}, {"m": 4}, "torch.float16 of rank 1"),
        ({"x": 3, "out": torch.zeros(5)}, {"m": 4}, "found 3"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, sizes, problem: str):
    function = build(COPY, {"x": torch.zeros(5), "out": torch.zeros(5)}, {"m": 4})
    with pytest.raises(InternalError, match=problem):
        run_function(function, arguments, sizes)
