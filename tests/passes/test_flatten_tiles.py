"""Flat grids give what grids over several axes give, for every block size."""

from __future__ import annotations

import pytest
import torch

from tests.lowering import run_standard
from tests.passes.kernel_texts import parse_kernel, results_of
from tests.passes.program_text import find_grid
from tilesmith.analysis.restructuring import find_flattenable
from tilesmith.ir.function import Function
from tilesmith.ir.verifier import verify_function
from tilesmith.passes.flatten_tiles import flatten_tiles


def kernel(body: str, extra: str = "", begins: str = "%zero, %zero") -> Function:
    """A grid over two axes of ``x``, f32[M, N], whose tile is ``%v``; results go to ``out``."""
    return run_standard(
        parse_kernel(f"""func @two {{
  param %x: tensor<f32[M, N], strides=[sx, 1], alias=0> from "x"
  param %out: tensor<f32[M, N], strides=[N, 1], alias=1> from "out"
  param %bias: tensor<f32[N], strides=[1], alias=2> from "bias"
  param %z: tensor<f32[M, N, 20], strides=[sz, 20, 1], alias=3> from "z"
  param %M: i32[] from "x.size(0)"
  param %N: i32[] from "x.size(1)"
  param %sx: i64[] from "x.stride(0)"
  param %sz: i64[] from "z.stride(0)"
  param %alpha: f32[] from "alpha"
  block m {{slot=0}}
  block n {{slot=1}}
  %zero = full() {{value=0}} : i32[]
  {extra}
  grid([{begins}], [%M, %N]) {{blocks=["m", "n"]}} (%b: i32[], %c: i32[]) {{
    %i = tile_index(%b) {{block="m"}} : i32[m]
    %j = tile_index(%c) {{block="n"}} : i32[n]
    %i1 = expand_dims(%i) {{axes=[1]}} : i32[m, 1]
    %j1 = expand_dims(%j) {{axes=[0]}} : i32[1, n]
    %v = load(%x, none, [%i1, %j1]) : f32[m, n]
    {body}
  }}
}}
""")
    )


def make_arguments(rows: int, columns: int) -> dict[str, torch.Tensor | int | float]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((rows, 2 * columns), generator=generator)[:, :columns]
    z = torch.randn((rows, columns, 20), generator=generator)
    return {
        "x": x, "out": torch.zeros(rows, columns), "z": z, "M": rows, "N": columns,
        "bias": torch.arange(float(columns)), "sx": 2 * columns, "sz": 20 * columns, "alpha": 0.5,
    }  # fmt: skip


def check(function: Function, rows: int = 7, columns: int = 11) -> Function:
    assert find_flattenable(function) == (0,)
    flat, joined = flatten_tiles(function, [0])
    verify_function(flat)
    assert joined == {"m_n": ("m", "n")}
    assert find_grid(flat).blocks == ("m_n",)
    arguments = make_arguments(rows, columns)
    expected = results_of(function, arguments, {"m": 4, "n": 8})
    for size in (1, 8, 32, 77, 128):
        found = results_of(flat, arguments, {"m": 4, "n": 8, "m_n": size})
        assert torch.equal(found["out"], expected["out"])
    return flat


SCALE = """
    %a1 = expand_dims(%alpha) {axes=[0, 1]} : f32[1, 1]
    %ab = broadcast(%a1) : f32[m, n]
    %q = elementwise(%v, %ab) {fn="mul"} : f32[m, n]
    store(%out, %q, none, [%i1, %j1])
"""


@pytest.mark.parametrize(("rows", "columns"), [(7, 11), (1, 1), (8, 16), (1, 13), (13, 1)])
def test_pointwise_kernel(rows: int, columns: int) -> None:
    check(kernel(SCALE), rows, columns)


def test_coordinates_used_as_numbers() -> None:
    check(
        kernel("""
        %three = full() {value=3} : i32[m]
        %i3 = elementwise(%i, %three) {fn="mul"} : i32[m]
        %i31 = expand_dims(%i3) {axes=[1]} : i32[m, 1]
        %ib = broadcast(%i31) : i32[m, n]
        %jb = broadcast(%j1) : i32[m, n]
        %s = elementwise(%ib, %jb) {fn="sub"} : i32[m, n]
        %f = cast(%s) : f32[m, n]
        %q = elementwise(%v, %f) {fn="add"} : f32[m, n]
        store(%out, %q, none, [%i1, %j1])
        """)
    )


def test_joint_tiles_with_a_further_axis_that_is_reduced() -> None:
    check(
        kernel("""
        %k = arange() : i32[20]
        %k2 = expand_dims(%k) {axes=[0, 1]} : i32[1, 1, 20]
        %i2 = expand_dims(%i) {axes=[1, 2]} : i32[m, 1, 1]
        %j2 = expand_dims(%j) {axes=[0, 2]} : i32[1, n, 1]
        %w = load(%z, none, [%i2, %j2, %k2]) : f32[m, n, 20]
        %e = elementwise(%w) {fn="abs"} : f32[m, n, 20]
        %v2 = expand_dims(%v) {axes=[2]} : f32[m, n, 1]
        %vb = broadcast(%v2) : f32[m, n, 20]
        %p = elementwise(%e, %vb) {fn="mul"} : f32[m, n, 20]
        %s = reduce(%p) {axis=2, kind="max"} : f32[m, n]
        store(%out, %s, none, [%i1, %j1])
        """)
    )


def test_masks_and_carried_joint_tiles() -> None:
    check(
        kernel(
            """
        %cut = full() {value=5} : i32[1, n]
        %small = elementwise(%j1, %cut) {fn="lt"} : bool[1, n]
        %r = loop([%zero], [%M], [%one], [%v]) {blocks=[""]} : f32[m, n] \
(%k: i32[], %acc: f32[m, n]) {
          %new = elementwise(%acc, %acc) {fn="add"} : f32[m, n]
          yield(%new)
        }
        store(%out, %r, %small, [%i1, %j1])
        """,
            extra="%one = full() {value=1} : i32[]",
        )
    )


def test_three_axes_and_constant_extents() -> None:
    function = run_standard(
        parse_kernel("""func @three {
  param %x: tensor<f32[3, 5, 7], strides=[35, 7, 1], alias=0> from "x"
  param %out: tensor<f32[3, 5, 7], strides=[1, 3, 15], alias=1> from "out"
  block p {fixed=2}
  block q {fixed=4}
  block r {fixed=4}
  %zero = full() {value=0} : i32[]
  %P = full() {value=3} : i32[]
  %Q = full() {value=5} : i32[]
  %R = full() {value=7} : i32[]
  grid([%zero, %zero, %zero], [%P, %Q, %R]) {blocks=["p", "q", "r"]} \
(%a: i32[], %b: i32[], %c: i32[]) {
    %i = tile_index(%a) {block="p"} : i32[p]
    %j = tile_index(%b) {block="q"} : i32[q]
    %k = tile_index(%c) {block="r"} : i32[r]
    %i1 = expand_dims(%i) {axes=[1, 2]} : i32[p, 1, 1]
    %j1 = expand_dims(%j) {axes=[0, 2]} : i32[1, q, 1]
    %v = load(%x, none, [%i1, %j1, %k]) : f32[p, q, r]
    %e = elementwise(%v) {fn="neg"} : f32[p, q, r]
    store(%out, %e, none, [%i1, %j1, %k])
  }
}
""")
    )
    flat, joined = flatten_tiles(function, [0])
    verify_function(flat)
    assert joined == {"p_q_r": ("p", "q", "r")}
    assert flat.block("p_q_r").fixed == 32
    x = torch.randn((3, 5, 7), generator=torch.Generator().manual_seed(0))
    out = torch.zeros(7, 5, 3).permute(2, 1, 0)
    assert torch.equal(results_of(flat, {"x": x, "out": out}, {})["out"], -x)


@pytest.mark.parametrize(
    "body",
    [
        # A value along one axis only.
        """
        %w = load(%bias, none, [%j]) : f32[n]
        %w1 = expand_dims(%w) {axes=[0]} : f32[1, n]
        %wb = broadcast(%w1) : f32[m, n]
        %q = elementwise(%v, %wb) {fn="add"} : f32[m, n]
        store(%out, %q, none, [%i1, %j1])
        """,
        # A reduction over one axis.
        """
        %s = reduce(%v) {axis=0, kind="sum"} : f32[n]
        store(%bias, %s, none, [%j])
        """,
        # A scan along one axis.
        """
        %s = scan(%v) {axis=1, kind="sum"} : f32[m, n]
        store(%out, %s, none, [%i1, %j1])
        """,
        # Axes in another order.
        """
        %t = permute(%v) {order=[1, 0]} : f32[n, m]
        %i2 = expand_dims(%i) {axes=[0]} : i32[1, m]
        %j2 = expand_dims(%j) {axes=[1]} : i32[n, 1]
        store(%out, %t, none, [%j2, %i2])
        """,
        # The position of a tile.
        """
        store(%out, %v, none, [%i1, %j1])
        store(%bias, %alpha, none, [%c])
        """,
        # A block size.
        """
        %size = block_size() {block="n"} : i32[]
        %s1 = expand_dims(%size) {axes=[0, 1]} : i32[1, 1]
        %f = cast(%s1) : f32[1, 1]
        %fb = broadcast(%f) : f32[m, n]
        %q = elementwise(%v, %fb) {fn="mul"} : f32[m, n]
        store(%out, %q, none, [%i1, %j1])
        """,
        # Something counted once per program.
        """
        %old = atomic(%bias, %alpha, none, [%zero]) {kind="add"} : f32[]
        store(%out, %v, none, [%i1, %j1])
        """,
    ],
)
def test_grids_that_cannot_be_flattened_are_left(body: str) -> None:
    function = kernel(body)
    assert find_flattenable(function) == ()
    flat, joined = flatten_tiles(function, [0])
    assert flat is function
    assert joined == {}


def test_ranges_that_do_not_begin_at_zero_are_left() -> None:
    one = "%one = full() {value=1} : i32[]"
    assert find_flattenable(kernel(SCALE, extra=one)) == (0,)
    assert find_flattenable(kernel(SCALE, extra=one, begins="%zero, %one")) == ()


def test_only_the_slots_asked_for_are_flattened() -> None:
    function = kernel(SCALE)
    assert flatten_tiles(function, []) == (function, {})
    assert flatten_tiles(function, [1]) == (function, {})
