"""A throw-away op that mixes lanes, added the way CONTRIBUTING says: roles make the passes right.

The op is declared here, with a rule for the interpreter and one for Triton. No pass, analysis or
fact knows its name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from typing_extensions import override

from tests.backends.triton.kernels import schedule
from tests.ir_parser import parse_function
from tests.lowering import run_standard
from tests.passes.kernel_texts import row_kernel
from tests.passes.padded_run import PaddedRun
from tilesmith.analysis.restructuring import find_flattenable, find_rollable_dims
from tilesmith.backends.cpu.planning.materialize import plan_grid
from tilesmith.backends.triton.backend import RULES
from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import call
from tilesmith.backends.triton.ops.program_ids import emit_body
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.interpreter.frame import Frame, Tile, prepare_function
from tilesmith.interpreter.run import run_prepared
from tilesmith.ir.axis_roles import Mixed
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Trait, attribute, op, operand
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.reduction import Scan
from tilesmith.ir.traversal import definitions, rewrite_function, walk_function
from tilesmith.ir.types import Constant, Dim, Value
from tilesmith.ir.verifier import verify_function
from tilesmith.passes.flatten_tiles import flatten_tiles
from tilesmith.passes.masks import mask_partial_tiles
from tilesmith.passes.squeeze_unit_axes import squeeze_unit_axes
from tilesmith.schedule.facts.extents import Extents
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.facts.products import reductions_by_dim
from tilesmith.schedule.facts.work import Counter, collect_work


@op("level", Trait.PURE, axes=Mixed("axis"))
class Level(Operation):
    """Every lane along ``axis`` holds the greatest element of all of them."""

    x: Value = operand()
    axis: int = attribute()

    @override
    def neutral(self, position: int) -> Constant | None:
        return self.x.tile.dtype.lowest


def evaluate_level(op: Level, frame: Frame) -> Tile:
    x = frame.tensor(op.x)
    return x.amax(op.axis, keepdim=True).expand(x.shape) if x.numel() else x


def emit_level(emitter: Emitter, op: Level) -> None:
    x = emitter.exact(op.x)
    shape = op.result.tile.shape
    greatest = call("tl.max", x, op.axis, "keep_dims=True", shape=shape)
    emitter.define(op.result, call("tl.broadcast_to", greatest, x.text + ".shape", shape=shape))


class PaddedLevel(PaddedRun):
    """With garbage in invalid lanes, as backends have it."""

    def _level(self, op: Any) -> torch.Tensor:
        x = self._values[op.x]
        return x.amax(op.axis, keepdim=True).expand(x.shape)


def with_levels(function: Function) -> Function:
    """The function with levels in the place of scans; text cannot name an op of a test."""

    def rewrite(old: Operation) -> Operation:
        if not isinstance(old, Scan):
            return old
        return Level(x=old.x, axis=old.axis, results=old.results, loc=old.loc)

    levelled = rewrite_function(function, rewrite)
    verify_function(levelled)
    return levelled


def row_levels(axis: int = 1, columns: int = 200) -> Function:
    """``out = level(exp(x))``: where lanes are invalid, exp gives 1, which is no level of less."""
    shape = f"f32[m, {columns}]"
    return with_levels(
        row_kernel(
            f"""
    %e = elementwise(%v) {{fn="exp"}} : {shape}
    %l = scan(%e) {{axis={axis}, kind="max"}} : {shape}
    store(%out, %l, none, [%r1, %n1])
    %s = reduce(%l) {{axis=1, kind="sum"}} : f32[m]
    store(%rowwise, %s, none, [%r])
    """,
            columns,
        )
    )


def make_rows(rows: int, columns: int = 200) -> dict[str, Any]:
    x = -torch.rand((rows, columns), generator=torch.Generator().manual_seed(2)) - 1
    return {"x": x, "out": torch.zeros_like(x), "rowwise": torch.zeros(rows), "rows": rows}


def run(function: Function, arguments: dict[str, Any], sizes: dict[str, int]) -> dict[str, Any]:
    copies = {n: a.clone() if isinstance(a, torch.Tensor) else a for n, a in arguments.items()}
    prepared = replace(prepare_function(function), evaluators={Level: evaluate_level})
    run_prepared(prepared, copies, sizes)
    return copies


def check_same(before: Function, after: Function, arguments: dict[str, Any], m: int) -> None:
    expected, found = (run(f, arguments, {"m": m}) for f in (before, after))
    for name in ("out", "rowwise"):
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=0)


@pytest.mark.parametrize("rows", [1, 7, 8, 9])
def test_it_is_interpreted(rows: int):
    arguments = make_rows(rows)
    found = run(row_levels(), arguments, {"m": 4})["out"]
    expected = arguments["x"].double().exp().amax(1, keepdim=True).expand(rows, 200)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("axis", [0, 1])
def test_invalid_lanes_are_masked_with_its_neutral_element(axis: int):
    masked = mask_partial_tiles(row_levels(axis))
    (level,) = (op for op in walk_function(masked) if isinstance(op, Level))
    mask = definitions(masked.body)[level.x]
    assert isinstance(mask, Mask)
    assert (mask.axes, mask.fill) == ((axis,), float("-inf"))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("rows", [1, 3, 5, 8])
def test_padded_tiles_give_exact_results_after_the_passes(axis: int, rows: int):
    function, arguments = row_levels(axis), make_rows(rows)
    expected = run(function, arguments, {"m": 4})
    found = PaddedLevel({"m": 4}).run(run_standard(function), arguments)
    torch.testing.assert_close(found["out"], expected["out"])
    torch.testing.assert_close(found["rowwise"], expected["rowwise"])


def test_passes_keep_what_it_computes():
    function = row_levels()
    check_same(function, run_standard(function), make_rows(9), m=4)


def test_it_is_squeezed_along_its_own_axis_and_beside_it():
    for axis in (0, 1):
        function = row_levels(axis)
        squeezed = squeeze_unit_axes(function, ["m"])
        verify_function(squeezed)
        check_same(function, squeezed, make_rows(5), m=1)
        left = [op for op in walk_function(squeezed) if isinstance(op, Level)]
        assert [op.axis for op in left] == ([] if axis == 0 else [0])


def test_an_axis_that_it_mixes_is_not_rolled():
    assert find_rollable_dims(row_levels()) == ()
    total = '%s = reduce(%v) {axis=1, kind="sum"} : f32[m]'
    plain = row_kernel(f"{total}\nstore(%rowwise, %s, none, [%r])")
    assert find_rollable_dims(plain) == (Dim.of(200),)


CUBE = """func @cube {
  param %x: tensor<f32[5, 6, 7], strides=[42, 7, 1], alias=0> from "x"
  param %out: tensor<f32[5, 6, 7], strides=[42, 7, 1], alias=1> from "out"
  block m {slot=0}
  block n {slot=1}
  %zero = full() {value=0} : i32[]
  %five = full() {value=5} : i32[]
  %six = full() {value=6} : i32[]
  grid([%zero, %zero], [%five, %six]) {blocks=["m", "n"], slot=0} (%b: i32[], %c: i32[]) {
    %i = tile_index(%b) {block="m"} : i32[m]
    %j = tile_index(%c) {block="n"} : i32[n]
    %k = arange() : i32[7]
    %i1 = expand_dims(%i) {axes=[1, 2]} : i32[m, 1, 1]
    %j1 = expand_dims(%j) {axes=[0, 2]} : i32[1, n, 1]
    %k1 = expand_dims(%k) {axes=[0, 1]} : i32[1, 1, 7]
    %v = load(%x, none, [%i1, %j1, %k1]) : f32[m, n, 7]
    %l = scan(%v) {axis=AXIS, kind="max"} : f32[m, n, 7]
    store(%out, %l, none, [%i1, %j1, %k1])
  }
}
"""


def test_a_grid_is_flattened_beside_its_axis_only():
    assert find_flattenable(with_levels(parse_function(CUBE.replace("AXIS", "1")))) == ()
    function = with_levels(parse_function(CUBE.replace("AXIS", "2")))
    flat, _ = flatten_tiles(function, find_flattenable(function))
    verify_function(flat)
    (level,) = (op for op in walk_function(flat) if isinstance(op, Level))
    assert (level.axis, level.x.tile.rank) == (1, 2)
    arguments = {"x": torch.randn(5, 6, 7), "out": torch.zeros(5, 6, 7)}
    expected = arguments["x"].amax(2, keepdim=True).expand(5, 6, 7)
    assert torch.equal(run(flat, arguments, {"m": 2, "n": 4, "m_n": 8})["out"], expected)


def test_one_rule_emits_it_as_triton():
    function = mask_partial_tiles(row_levels())
    emitter = Emitter(function, schedule(symbols={"m": 4}), {**RULES, Level: emit_level})
    with emitter.writer.indented():
        emit_body(emitter)
    assert "tl.max(" in emitter.writer.text()


def test_native_code_names_the_op_it_has_no_step_for():
    function = row_levels()
    grid = function.body.ops[-1]
    assert isinstance(grid, Grid)
    with pytest.raises(InternalError, match="native code has no step for level"):
        plan_grid(function, grid.body, schedule("cpu", symbols={"m": 4}))


def test_facts_count_it_as_work_along_its_axis():
    outline = FunctionOutline(with_levels(parse_function(CUBE.replace("AXIS", "2"))))
    assert list(reductions_by_dim(outline)) == [Dim.of(7)]
    extents = Extents(outline)
    work = collect_work(extents, Counter(extents))
    assert work.total("reduction", {"m": 2, "n": 4}) == 5 * 6 * 7
