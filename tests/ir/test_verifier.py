"""Each invariant of the IR, broken once."""

from __future__ import annotations

import pytest

from tests.ir_parser import parse_function
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.dtypes import F32, I32
from tilesmith.ir.function import Function, Parameter
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Yield
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.types import TensorType, Value, scalar
from tilesmith.ir.verifier import verify_function

HEAD = """func @f {
  param %x: tensor<f32[64], strides=[1], alias=0> from "x"
  param %counts: tensor<i32[8], strides=[1], alias=1> from "counts"
  block m {slot=0}
  block k {slot=1}
  size n {hint=8}
  %zero = full() {value=0} : i32[]
  %end = full() {value=64} : i32[]
  %flag = full() {value=true} : bool[]
  %one = full() {value=1.0} : f32[]
"""


def in_grid(body: str) -> str:
    return f'{HEAD} grid([%zero], [%end]) {{blocks=["m"]}} (%i: i32[]) {{\n{body}\n}}\n}}'


def problem_of(function: Function) -> str:
    with pytest.raises(InternalError) as caught:
        verify_function(function)
    return str(caught.value)


def problem_in(body: str) -> str:
    return problem_of(parse_function(in_grid(body)))


def function_of(*ops: Operation, parameters: tuple[Parameter, ...] = ()) -> Function:
    return Function("f", parameters, (), (), Region((), ops))


GOOD_BODIES = {
    "empty grid": "",
    "loop": """
      %r = loop([%zero], [%end], [%one_i], [%one]) {blocks=[""]} : f32[] (%j: i32[], %c: f32[]) {
        yield(%c)
      }""".replace("%one_i", "%end"),
    "loop without results needs no yield": """
      loop([%zero], [%end], [], []) {blocks=["k"]} (%j: i32[]) {
      }""",
    "while": """
      %r = while(%one) : f32[] (%a: f32[]) {
        yield(%flag)
      } (%b: f32[]) {
        yield(%b)
      }""",
    "if": """
      %r = if(%flag) : f32[] () {
        yield(%one)
      } () {
        yield(%one)
      }""",
    "scalar index into a tensor": "%v = load(%x, none, [%i]) : f32[]",
    "size symbol": "%v = arange() : i32[n]",
    "barriers of a group": """
      %wide = cast(%i) : i64[]
      group_barrier(%counts, %i, %end)
      group_barrier(%counts, %wide, %end)""",
    "loop over a block already bound": """
      loop([%zero], [%end], [], []) {blocks=["m"]} (%j: i32[]) {
      }""",
}


@pytest.mark.parametrize("body", GOOD_BODIES.values(), ids=GOOD_BODIES.keys())
def test_valid_functions_pass(body: str):
    verify_function(parse_function(in_grid(body)))


BAD_BODIES = {
    "wrong result shape": (
        '%t = tile_index(%i) {block="m"} : i32[k]',
        "tile_index: shape must be [block]",
    ),
    "unknown symbol": ("%t = arange() : i32[q]", "dimension q names no declared block or size"),
    "unknown symbol in a product": ("%t = full() {value=1} : i32[m*q]", "dimension m*q"),
    "unknown block attribute": (
        '%t = block_size() {block="n"} : i32[]',
        "'n' is no declared block",
    ),
    "unknown block of a loop": (
        'loop([%zero], [%end], [], []) {blocks=["z"]} (%j: i32[]) {\n}',
        "'z' is no declared block",
    ),
    "scan of an axis that is not there": (
        '%t = scan(%one) {axis=0, kind="sum"} : f32[]',
        "scan: axis 0 of a tile of rank 0",
    ),
    "scan that gives a position": (
        '%a = arange() : i32[m]\n%t = scan(%a) {axis=0, kind="argmax"} : i32[m]',
        "unknown scan 'argmax'",
    ),
    "scan that changes the type": (
        '%a = arange() : i32[m]\n%t = scan(%a) {axis=0, kind="sum"} : i64[m]',
        "scan changes the type",
    ),
    "scan of bools": (
        '%a = full() {value=true} : bool[m]\n%t = scan(%a) {axis=0, kind="max"} : bool[m]',
        "scan of bools",
    ),
    "upper half of signed integers": (
        '%t = elementwise(%i, %i) {fn="mulhi"} : i32[]',
        "mulhi multiplies u32 or u64",
    ),
    "nested grid": (
        'grid([%zero], [%end]) {blocks=["k"]} (%j: i32[]) {\n}',
        "a grid stands inside a grid",
    ),
    "barrier of all programs inside a grid": (
        "grid_barrier()",
        "a grid_barrier stands inside a grid",
    ),
    "barrier of a group in a loop": (
        """loop([%zero], [%end], [], []) {blocks=["k"]} (%j: i32[]) {
          group_barrier(%counts, %i, %end)
        }""",
        "a group_barrier stands inside a loop",
    ),
    "barrier of a group in a branch": (
        "if(%flag) () {\ngroup_barrier(%counts, %i, %end)\n} () {\n}",
        "a group_barrier stands inside a if",
    ),
    "barrier that counts in floats": (
        "group_barrier(%x, %i, %end)",
        "group_barrier: counts must be a tensor of i32 of rank 1",
    ),
    "barrier at many places": (
        '%t = tile_index(%i) {block="m"} : i32[m]\ngroup_barrier(%counts, %t, %end)',
        "place and arrivals must be integer scalars",
    ),
    "barrier for a broken number of programs": (
        "group_barrier(%counts, %i, %one)",
        "place and arrivals must be integer scalars",
    ),
    "barrier with a result": (
        "%a = group_barrier(%counts, %i, %end) : f32[]",
        "1 results, expected 0",
    ),
    "out of scope": (
        """loop([%zero], [%end], [], []) {blocks=["k"]} (%j: i32[]) {
           %inner = full() {value=1} : f32[]
        }
        %t = elementwise(%inner) {fn="neg"} : f32[]""",
        "operand 'inner' is out of scope",
    ),
    "argument of the other branch": (
        """%r = while(%one) : f32[] (%a: f32[]) {
          yield(%flag)
        } (%b: f32[]) {
          yield(%a)
        }""",
        "operand 'a' is out of scope",
    ),
    "loop without a yield": (
        """%r = loop([%zero], [%end], [], [%one]) {blocks=["k"]} : f32[] (%j: i32[], %c: f32[]) {
        }""",
        "yielded values () differ in type from the results",
    ),
    "loop yields another type": (
        """%r = loop([%zero], [%end], [], [%one]) {blocks=["k"]} : f32[] (%j: i32[], %c: f32[]) {
          yield(%j)
        }""",
        "yielded values (i32[]) differ",
    ),
    "loop yields too much": (
        """%r = loop([%zero], [%end], [], [%one]) {blocks=["k"]} : f32[] (%j: i32[], %c: f32[]) {
          yield(%c, %c)
        }""",
        "yielded values (f32[], f32[]) differ",
    ),
    "carried argument of another type": (
        """%r = loop([%zero], [%end], [], [%one]) {blocks=["k"]} : f32[] (%j: i32[], %c: i32[]) {
          yield(%one)
        }""",
        "region arguments (i32[]) differ",
    ),
    "missing step": (
        'loop([%zero], [%end], [], []) {blocks=[""]} (%j: i32[]) {\n}',
        "one step is needed",
    ),
    "grid yields": ("yield(%one)", "a grid yields nothing"),
    "while condition of the wrong type": (
        """%r = while(%one) : f32[] (%a: f32[]) {
          yield(%one)
        } (%b: f32[]) {
          yield(%b)
        }""",
        "the condition must yield one bool scalar",
    ),
    "while without a condition": (
        """%r = while(%one) : f32[] (%a: f32[]) {
        } (%b: f32[]) {
          yield(%b)
        }""",
        "the condition must yield one bool scalar",
    ),
    "if branch without its yield": (
        """%r = if(%flag) : f32[] () {
          yield(%one)
        } () {
        }""",
        "a branch does not yield the results' types",
    ),
    "terminator before the end": ("yield()\n yield()", "only the last op of a region may end it"),
    "too few indices": ("%v = load(%x, none, []) : f32[]", "0 indices for a tensor of rank 1"),
    "index does not fit the access": (
        '%t = tile_index(%i) {block="m"} : i32[m]\n %v = load(%x, none, [%t]) : f32[k]',
        "does not broadcast to the accessed shape",
    ),
    "mask is not bool": ("%v = load(%x, %i, [%i]) : f32[]", "the mask must be bool"),
    "load changes the type": (
        "%v = load(%x, none, [%i]) : f16[]",
        "gives the tensor's element type",
    ),
    "tensor where a tile belongs": (
        '%v = elementwise(%x) {fn="neg"} : f32[]',
        "malformed (AssertionError",
    ),
    "too many results": (
        '%a, %b = elementwise(%one) {fn="neg"} : f32[], f32[]',
        "2 results, expected 1",
    ),
    "result of an effect": ("%a = program_barrier() : f32[]", "1 results, expected 0"),
}


@pytest.mark.parametrize(("body", "problem"), BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_broken_invariants_are_found(body: str, problem: str):
    text = problem_in(body)
    assert problem in text
    assert "func @f {" in text


def test_a_barrier_of_a_group_belongs_to_a_grid():
    text = f"{HEAD} group_barrier(%counts, %zero, %end)\n}}"
    assert "a group_barrier stands outside all grids" in problem_of(parse_function(text))


def test_use_before_definition_is_found():
    value = Value(scalar(F32), "late")
    use = Elementwise(args=(value,), fn="neg", results=(Value(scalar(F32)),))
    define = Full(value=1.0, results=(value,))
    text = problem_of(function_of(use, define))
    assert "operand 'late' is not defined" in text
    assert "%undefined.late" in text


def test_value_defined_twice_is_found():
    op = Full(value=1.0, results=(Value(scalar(F32), "again"),))
    assert "value 'again' is defined twice" in problem_of(function_of(op, op))


def test_parameter_defined_again_is_found():
    value = Value(scalar(F32), "p")
    op = Full(value=1.0, results=(value,))
    function = function_of(op, parameters=(Parameter(value, "p"),))
    assert "value 'p' is defined twice" in problem_of(function)


def test_two_parameters_of_one_name_are_found():
    parameters = tuple(Parameter(Value(scalar(I32), "p"), "p") for _ in range(2))
    assert "parameter 'p' is declared twice" in problem_of(function_of(parameters=parameters))


def test_a_block_and_a_size_of_one_name_are_found():
    text = "func @f {\n block n\n size n {hint=1}\n}"
    assert "symbol 'n' is declared twice" in problem_of(parse_function(text))


@pytest.mark.parametrize(("shape", "strides"), [(("q",), (1,)), ((4,), ("q",)), (("t",), (1,))])
def test_tensor_extents_must_be_scalar_parameters(shape, strides):
    tensor = Value(TensorType(F32, shape, strides), "t")
    function = function_of(parameters=(Parameter(tensor, "t"),))
    assert "which is no scalar parameter" in problem_of(function)


def test_strides_and_shape_must_agree_in_length():
    tensor = Value(TensorType(F32, (4, 4), (1,)), "t")
    function = function_of(parameters=(Parameter(tensor, "t"),))
    assert "as many strides as dimensions" in problem_of(function)


def test_only_parameters_may_be_tensors():
    op = Full(value=1.0, results=(Value(TensorType(F32, (4,), (1,)), "t"),))
    assert "only parameters are tensors" in problem_of(function_of(op))


def test_yield_at_top_level_with_undefined_operand_is_found():
    assert "not defined" in problem_of(function_of(Yield(values=(Value(scalar(F32)),))))
