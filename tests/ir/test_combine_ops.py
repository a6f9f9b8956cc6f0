"""What the verifier says of reductions and scans with regions, and their text form."""

from __future__ import annotations

import pytest

from tests.ir.test_verifier import in_grid, problem_in
from tests.ir_parser import parse_function
from tilesmith.ir.printer import print_function
from tilesmith.ir.verifier import verify_function

TILES = """
%a = full() {value=1.5} : f32[m]
%p = arange() : i32[m]
"""
ADD = '%t = elementwise(%l, %r) {fn="add"} : f32[]\nyield(%t)'


def scan(body: str = ADD, results: str = "f32[m]", args: str = "%l: f32[], %r: f32[]") -> str:
    return f"{TILES}%s = scan_with(%a) {{axis=0}} : {results} ({args}) {{\n{body}\n}}"


def reduction(attributes: str) -> str:
    head = f"%s = reduce_with(%a) {{{attributes}}} : f32[]"
    return f"{TILES}{head} (%l: f32[], %r: f32[]) {{\n{ADD}\n}}"


def test_text_is_read_back():
    pair = f"""{TILES}%s, %q = scan_with(%a, %p) {{axis=0, reverse=true}} : f32[m], i32[m]
    (%l: f32[], %lp: i32[], %r: f32[], %rp: i32[]) {{
      %c = elementwise(%lp, %rp) {{fn="lt"}} : bool[]
      %v = elementwise(%c, %l, %r) {{fn="where"}} : f32[]
      yield(%v, %rp)
    }}"""
    for body in (pair, scan(), reduction("axis=0"), reduction("axis=0, others=[0.5]")):
        function = parse_function(in_grid(body))
        verify_function(function)
        text = print_function(function)
        assert print_function(parse_function(text)) == text


MISTAKES = {
    "value from outside": (
        scan('%t = elementwise(%l, %one) {fn="add"} : f32[]\nyield(%t)'),
        "the combination uses a value from outside",
    ),
    "load inside": (
        scan("%t = load(%x, none, [%i]) : f32[]\nyield(%t)"),
        "a load stands in a combination",
    ),
    "result of another type": (scan(results="f16[m]"), "result types do not follow"),
    "one argument": (scan("yield(%l)", args="%l: f32[]"), "must take the left elements"),
    "arguments of another type": (
        scan("yield(%l)", args="%l: f32[], %r: i32[]"),
        "must take the left elements",
    ),
    "nothing yielded": (scan("yield()"), "must yield one element"),
    "axis that is not there": (reduction("axis=1"), "axis 1 of a tile of rank 1"),
    "two values for masked lanes": (
        reduction("axis=0, others=[0.0, 1.0]"),
        "one value for masked lanes",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name: str):
    body, problem = MISTAKES[name]
    assert problem in problem_in(body)
