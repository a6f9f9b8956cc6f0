"""Text to IR and back: golden text, random functions, and the errors of malformed text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ir_parser import IRSyntaxError, parse_function
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.dtypes import ALL_DTYPES, BOOL, F32, I32
from tilesmith.ir.function import Block, Builder, Function, Parameter, Size
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, If, Loop, While, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full, TileIndex
from tilesmith.ir.printer import print_function
from tilesmith.ir.types import Dim, TensorType, TileType, Value, scalar
from tilesmith.ir.verifier import verify_function

GOLDEN = """\
func @row_max {
  param %x: tensor<f32[64, n], strides=[sx, 1], alias=0> from "x"
  param %y: tensor<f32[64], strides=[1], alias=-1, wide> from "y \\"quoted\\" \\\\ // no comment"
  param %n: i32[] from "x.size(1)"
  param %sx: i64[] from "x.stride(0)"
  block tile_m {slot=0, extent=64}
  block tile_n {fixed=16, low=2, high=32}
  block rest
  size n {hint=100}
  tunable split {value=[1, "a", none, true]}
  %zero = full() {value=0} : i32[]
  %0 = full() {value=64} : i32[]
  grid([%zero], [%0]) {blocks=["tile_m"], slot=0} (%i: i32[]) {
    %rows = tile_index(%i) {block="tile_m"} : i32[tile_m]
    %1 = expand_dims(%rows) {axes=[1]} : i32[tile_m, 1]
    %best = full() {value=-inf} : f32[tile_m]
    %4, %count = loop([%zero], [%n], [], [%best, %zero]) {blocks=["tile_n"], is_ordered=true} : \
f32[tile_m], i32[] (%j: i32[], %acc: f32[tile_m], %c: i32[]) {
      %columns = tile_index(%j) {block="tile_n"} : i32[tile_n]
      %2 = expand_dims(%columns) {axes=[0]} : i32[1, tile_n]
      %v = load(%x, none, [%1, %2]) {eviction="evict_last"} : f32[tile_m, tile_n]
      %flat = reshape(%v) : f32[tile_m*tile_n]
      %s = reduce(%v) {axis=1, kind="max"} : f32[tile_m]
      %3 = elementwise(%acc, %s) {fn="maximum"} : f32[tile_m]
      yield(%3, %c)
    }
    %is_none = elementwise(%count, %zero) {fn="eq"} : bool[]
    if(%is_none) () {
      store(%y, %4, none, [%rows])
      yield()
    } () {
    }
    program_barrier()
  }
}
"""


def test_golden_text_prints_back_exactly():
    function = parse_function(GOLDEN)
    verify_function(function)
    assert print_function(function) == GOLDEN


def test_parsed_fields_hold_what_the_text_says():
    function = parse_function(GOLDEN)
    x, y, n, _ = (parameter.value for parameter in function.parameters)
    assert x.type == TensorType(F32, (64, "n"), ("sx", 1), 0)
    assert y.type == TensorType(F32, (64,), (1,), -1, wide=True)
    assert n.type == scalar(I32)
    assert function.parameters[1].source == 'y "quoted" \\ // no comment'
    assert function.blocks[0] == Block("tile_m", slot=0, extent=64)
    assert function.blocks[1] == Block("tile_n", fixed=16, low=2, high=32)
    assert function.blocks[2] == Block("rest")
    assert function.sizes == (Size("n", 100),)
    assert function.tunables == (("split", (1, "a", None, True)),)
    grid = function.body.ops[-1]
    assert isinstance(grid, Grid)
    loop = grid.body.ops[3]
    assert isinstance(loop, Loop)
    assert (loop.is_ordered, loop.slot, loop.blocks) == (True, -1, ("tile_n",))
    assert loop.body.ops[3].result.type == TileType(F32, (Dim(("tile_m", "tile_n")),))
    assert [value.name for value in loop.results] == ["", "count"]


def test_location_comments_are_dropped():
    builder = Builder(lambda: SourceLocation("kernel.py", 7, "f"))
    builder.create(Full, scalar(F32), value=1.5)
    text = print_function(Function("f", (), (), (), builder.close_region()))
    assert "  // kernel.py:7" in text
    assert print_function(parse_function(text)) == text.replace("  // kernel.py:7", "")


def test_equal_name_hints_get_numbers_that_are_kept():
    builder = Builder()
    for _ in range(3):
        builder.create(Full, scalar(F32), value=1.5).name = "x"
    text = print_function(Function("f", (), (), (), builder.close_region()))
    assert [line.split()[0] for line in text.splitlines()[1:-1]] == ["%x", "%x_1", "%x_2"]
    assert print_function(parse_function(text)) == text


@pytest.mark.parametrize("value", [0, -3, 2**70, 1.0, -1e-30, 1e300, math.inf, -math.inf, True])
def test_constants_keep_value_and_kind(value: float):
    builder = Builder()
    builder.create(Full, scalar(F32), value=value)
    parsed = parse_function(print_function(Function("f", (), (), (), builder.close_region())))
    (op,) = parsed.body.ops
    assert isinstance(op, Full)
    assert op.value == value
    assert type(op.value) is type(value)


def test_nan_constant_is_kept():
    builder = Builder()
    builder.create(Full, scalar(F32), value=math.nan)
    (op,) = parse_function(
        print_function(Function("f", (), (), (), builder.close_region()))
    ).body.ops
    assert isinstance(op, Full)
    assert math.isnan(op.value)


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("func @f {\n  %a = bogus()\n}", 2, 8, "unknown op 'bogus'"),
        ("func @f {\n  %a = full() {value=1} : f33[]\n}", 2, 27, "unknown element type"),
        ("func @f {\n  %a = full() {valu=1} : f32[]\n}", 2, 16, "unexpected attribute 'valu'"),
        ("func @f {\n  %a = full() : f32[]\n}", 2, 8, "needs the attribute 'value'"),
        ("func @f {\n  yield(%a)\n}", 2, 9, "%a is not defined here"),
        ('func @f {\n  %a = block_size() {block="b"} i32[]\n}', 2, 33, "expected ':'"),
        ("func @f {", 1, 10, "found 'end of text'"),
        ("func @f {\n} }", 2, 3, "expected the end"),
        ("func @f {\n  ; }", 2, 3, "unexpected character ';'"),
        ("func @f {\n  size n\n}", 2, 8, "needs its hint"),
        ("func f {\n}", 1, 6, "expected a symbol"),
    ],
)
def test_syntax_errors_say_where(text: str, line: int, column: int, problem: str):
    with pytest.raises(IRSyntaxError) as caught:
        parse_function(text)
    assert problem in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert isinstance(caught.value, ValueError)


def test_a_name_may_be_defined_only_once():
    line = "  %a = full() {value=1} : f32[]\n"
    with pytest.raises(IRSyntaxError, match="defined twice"):
        parse_function("func @f {\n" + line + line + "}")


SHAPES = st.lists(
    st.sampled_from(
        [Dim(()), Dim((7,)), Dim(("b0",)), Dim(("n",)), Dim(("b0", 4)), Dim((2, "b1", "n"))]
    ),
    max_size=3,
).map(tuple)
TILES = st.builds(TileType, st.sampled_from(ALL_DTYPES), SHAPES)
NAMES = st.sampled_from(["", "", "x", "acc", "x_1", "tile", "none"])
ATTRIBUTE_VALUES = st.one_of(
    st.integers(), st.floats(allow_nan=False), st.booleans(), st.sampled_from([1e-5, -0.0])
)


class _RandomBody:
    """Draws ops over the values in scope; only the structure makes sense, the types need not."""

    def __init__(self, draw, values: list[Value]) -> None:
        self.draw = draw
        self.values = values

    def value(self) -> Value:
        return self.draw(st.sampled_from(self.values))

    def fresh(self, type_: TileType | None = None) -> Value:
        return Value(type_ or self.draw(TILES), self.draw(NAMES))

    def region(self, depth: int, num_args: int, num_yields: int | None) -> Region:
        inner = _RandomBody(self.draw, list(self.values))
        args = tuple(inner.fresh() for _ in range(num_args))
        inner.values.extend(args)
        ops = [inner.op(depth) for _ in range(self.draw(st.integers(0, 3)))]
        if num_yields is not None:
            ops.append(Yield(values=tuple(inner.value() for _ in range(num_yields))))
        return Region(args, tuple(ops))

    def op(self, depth: int) -> Operation:
        kinds = [self.plain, self.full, self.cast]
        kinds += [self.loop, self.branch, self.repeat] if depth else []
        op = self.draw(st.sampled_from(kinds))(depth)
        self.values.extend(op.results)
        return op

    def plain(self, _: int) -> Operation:
        return Elementwise(
            args=tuple(self.value() for _ in range(self.draw(st.integers(0, 3)))),
            fn=self.draw(st.text(max_size=5)),
            results=(self.fresh(),),
        )

    def full(self, _: int) -> Operation:
        return Full(value=self.draw(ATTRIBUTE_VALUES), results=(self.fresh(),))

    def cast(self, _: int) -> Operation:
        return Cast(x=self.value(), bitcast=self.draw(st.booleans()), results=(self.fresh(),))

    def loop(self, depth: int) -> Operation:
        count = self.draw(st.integers(0, 2))
        return Loop(
            begins=(self.value(),),
            ends=(self.value(),),
            steps=(),
            init=tuple(self.value() for _ in range(count)),
            blocks=(self.draw(st.sampled_from(["b0", ""])),),
            slot=self.draw(st.integers(-1, 3)),
            body=self.region(depth - 1, 1 + count, count),
            results=tuple(self.fresh() for _ in range(count)),
        )

    def branch(self, depth: int) -> Operation:
        return If(
            condition=self.value(),
            then=self.region(depth - 1, 0, 1),
            otherwise=self.region(depth - 1, 0, 1),
            results=(self.fresh(),),
        )

    def repeat(self, depth: int) -> Operation:
        return While(
            init=(self.value(),),
            condition=self.region(depth - 1, 1, 1),
            body=self.region(depth - 1, 1, 1),
            results=(self.fresh(TileType(BOOL)),),
        )


@st.composite
def random_functions(draw) -> Function:
    tensor = Value(
        TensorType(F32, ("n", 3), (3, 1), draw(st.integers(-1, 2)), draw(st.booleans())), "x"
    )
    size = Value(scalar(I32), "n")
    body = _RandomBody(draw, [tensor, size]).region(2, 0, None)
    parameters = (Parameter(tensor, draw(st.text(max_size=8))), Parameter(size, "x.size(0)"))
    return Function("f", parameters, (Block("b0"), Block("b1", fixed=4)), (Size("n", 9),), body)


@given(random_functions())
@settings(max_examples=60)
def test_random_functions_print_the_same_after_parsing(function: Function):
    text = print_function(function)
    assert print_function(parse_function(text)) == text


def test_tile_index_text_is_short():
    builder = Builder()
    begin = builder.create(Full, scalar(I32), value=0)
    builder.create(TileIndex, TileType(I32, (Dim.of("b"),)), begin=begin, block="b")
    text = print_function(Function("f", (), (Block("b"),), (), builder.close_region()))
    assert '  %1 = tile_index(%0) {block="b"} : i32[b]\n' in text
