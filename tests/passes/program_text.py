"""IR text around the few ops a test is about, and what is left of it after a pass."""

from __future__ import annotations

from collections.abc import Callable

from tests.ir_parser import parse_function
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.printer import print_function
from tilesmith.ir.verifier import verify_function

PARAMETERS = """
  param %x: tensor<f32[100], strides=[1], alias=0> from "x"
  param %y: tensor<f32[100], strides=[1], alias=1> from "y"
  param %w: tensor<f32[100, 60], strides=[60, 1], alias=2> from "w"
  param %h: tensor<bf16[64, 64], strides=[64, 1], alias=3> from "h"
  param %a: i32[] from "a"
  param %f: f32[] from "f"
  param %c: bool[] from "c"
  block t {slot=0}
  block u {slot=1}
  block fixed {fixed=8}
"""


def make_program(body: str, bounds: str = "") -> Function:
    """A function of one grid over block ``t`` (index ``%i``), with ``body`` inside."""
    text = f"""func @program {{{PARAMETERS}
  %zero = full() {{value=0}} : i32[]
  %hundred = full() {{value=100}} : i32[]
  {bounds}
  grid([%zero], [%hundred]) {{blocks=["t"]}} (%b: i32[]) {{
    %i = tile_index(%b) {{block="t"}} : i32[t]
    {body}
  }}
}}
"""
    function = parse_function(text)
    verify_function(function)
    return function


def body_after(run: Callable[[Function], Function], function: Function) -> list[str]:
    """The lines of the grid's body after a pass, without indentation and slots."""
    after = run(function)
    verify_function(after)
    return body_lines(after)


def body_lines(function: Function) -> list[str]:
    """The lines of the grid's body, without those of the index every program has."""
    lines = [line.strip() for line in print_function(function).splitlines()]
    start = next(i for i, line in enumerate(lines) if line.startswith("grid("))
    return [line for line in lines[start + 1 : -2] if not line.startswith("%i = ")]


def find_grid(function: Function) -> Grid:
    """The only grid."""
    (grid,) = (op for op in function.body.ops if isinstance(op, Grid))
    return grid
