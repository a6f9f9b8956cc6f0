"""Products added to an accumulator become one dot; rounding that the user asked for stays."""

from __future__ import annotations

from tests.lowering import run_standard
from tests.passes.program_text import body_after, make_program
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.traversal import walk_function
from tilesmith.passes.expressions import fuse_accumulating_dots

OPERANDS = """
    %n = arange() : i32[64]
    %rows = expand_dims(%n) {axes=[1]} : i32[64, 1]
    %columns = expand_dims(%n) {axes=[0]} : i32[1, 64]
    %l = load(%h, none, [%rows, %columns]) : bf16[64, 64]
    %acc = full() {value=1.0} : f32[64, 64]
"""


def fuse(body: str, stored: str = "%s") -> str:
    program = make_program(f"""
        {OPERANDS}
        {body}
        %out = cast({stored}) : bf16[64, 64]
        store(%h, %out, none, [%rows, %columns])
    """)
    return "\n".join(body_after(fuse_accumulating_dots, program))


def test_sum_with_a_product_is_a_dot_with_accumulator() -> None:
    text = fuse("""
        %d = dot(%l, %l, none) {precision="tf32"} : f32[64, 64]
        %s = elementwise(%acc, %d) {fn="add"} : f32[64, 64]
    """)
    assert '%s = dot(%l, %l, %acc) {precision="tf32"} : f32[64, 64]' in text
    assert "elementwise" not in text


def test_either_order_and_the_rounding_of_half_products() -> None:
    text = fuse("""
        %d = dot(%l, %l, none) : f32[64, 64]
        %half = cast(%d) : bf16[64, 64]
        %wide = cast(%half) : f32[64, 64]
        %s = elementwise(%wide, %acc) {fn="add"} : f32[64, 64]
    """)
    assert "%s = dot(%l, %l, %acc)" in text
    assert "%half" not in text


def test_two_products_accumulate_one_after_the_other() -> None:
    text = fuse("""
        %d = dot(%l, %l, none) : f32[64, 64]
        %s0 = elementwise(%acc, %d) {fn="add"} : f32[64, 64]
        %e = dot(%l, %l, none) : f32[64, 64]
        %s = elementwise(%s0, %e) {fn="add"} : f32[64, 64]
    """)
    assert "%s0 = dot(%l, %l, %acc)" in text
    assert "%s = dot(%l, %l, %s0)" in text


def test_rounding_to_another_type_is_kept() -> None:
    text = fuse("""
        %d = dot(%l, %l, none) : f32[64, 64]
        %half = cast(%d) : f16[64, 64]
        %wide = cast(%half) : f32[64, 64]
        %s = elementwise(%wide, %acc) {fn="add"} : f32[64, 64]
    """)
    assert "elementwise" in text


def test_product_with_another_use_is_kept() -> None:
    text = fuse("""
        %d = dot(%l, %l, none) : f32[64, 64]
        %s0 = elementwise(%acc, %d) {fn="add"} : f32[64, 64]
        %s = elementwise(%s0, %d) {fn="mul"} : f32[64, 64]
    """)
    assert "%d = dot(%l, %l, none)" in text


def test_product_plus_itself_is_kept() -> None:
    text = fuse("""
        %d = dot(%l, %l, none) : f32[64, 64]
        %s = elementwise(%d, %d) {fn="add"} : f32[64, 64]
    """)
    assert '%s = elementwise(%d, %d) {fn="add"}' in text


def test_dot_with_an_accumulator_keeps_its_own() -> None:
    text = fuse("""
        %d = dot(%l, %l, %acc) : f32[64, 64]
        %s = elementwise(%acc, %d) {fn="add"} : f32[64, 64]
    """)
    assert "%d = dot(%l, %l, %acc)" in text
    assert "elementwise" in text


def test_product_outside_the_loop_is_not_repeated_inside() -> None:
    text = fuse(
        """
        %d = dot(%l, %l, none) : f32[64, 64]
        %s = loop([%zero], [%hundred], [], [%acc]) {blocks=["u"]} : f32[64, 64] \
(%k: i32[], %p: f32[64, 64]) {
          %q = elementwise(%p, %d) {fn="add"} : f32[64, 64]
          yield(%q)
        }
        """
    )
    assert "%d = dot(%l, %l, none)" in text


def test_product_in_a_loop_takes_the_carried_accumulator() -> None:
    text = fuse(
        """
        %s = loop([%zero], [%hundred], [], [%acc]) {blocks=["u"]} : f32[64, 64] \
(%k: i32[], %p: f32[64, 64]) {
          %d = dot(%l, %l, none) : f32[64, 64]
          %q = elementwise(%p, %d) {fn="add"} : f32[64, 64]
          yield(%q)
        }
        """
    )
    assert "%q = dot(%l, %l, %p)" in text


def test_a_product_added_twice_is_never_rounded() -> None:
    program = make_program(f"""
        {OPERANDS}
        %d = dot(%l, %l, none) : f32[64, 64]
        %half = cast(%d) : bf16[64, 64]
        %wide = cast(%half) : f32[64, 64]
        %s = elementwise(%acc, %wide) {{fn="add"}} : f32[64, 64]
        %e = dot(%l, %l, none) : f32[64, 64]
        %half_2 = cast(%e) : bf16[64, 64]
        %wide_2 = cast(%half_2) : f32[64, 64]
        %r = elementwise(%s, %wide_2) {{fn="add"}} : f32[64, 64]
        %out = cast(%r) : bf16[64, 64]
        store(%h, %out, none, [%rows, %columns])
    """)
    dots = [op for op in walk_function(run_standard(program)) if isinstance(op, Dot)]
    assert [op.acc is not None for op in dots] == [True, True]
