"""Constants fold through lane-wise ops and views; constant branches are taken."""

from __future__ import annotations

from tests.passes.program_text import body_after, make_program
from tilesmith.passes.eliminate_dead_code import eliminate_dead_code
from tilesmith.passes.simplify import fold_constants


def fold(body: str) -> list[str]:
    return body_after(lambda f: eliminate_dead_code(fold_constants(f)), make_program(body))


def test_scalars_fold() -> None:
    lines = fold("""
        %p = full() {value=7} : i32[]
        %q = full() {value=-2} : i32[]
        %r = elementwise(%p, %q) {fn="floordiv"} : i32[]
        %s = elementwise(%r, %q) {fn="mul"} : i32[]
        store(%y, %f, none, [%s])
    """)
    assert lines[0] == "%s = full() {value=8} : i32[]"


def test_tiles_of_one_constant_fold_through_views_and_casts() -> None:
    lines = fold("""
        %p = full() {value=2.5} : f32[]
        %q = expand_dims(%p) {axes=[0]} : f32[1]
        %r = broadcast(%q) : f32[t]
        %s = cast(%r) : i32[t]
        %v = cast(%s) : f32[t]
        store(%y, %v, none, [%i])
    """)
    assert lines == ["%v = full() {value=2.0} : f32[t]", "store(%y, %v, none, [%i])"]


def test_what_devices_leave_undefined_is_not_folded() -> None:
    lines = fold("""
        %p = full() {value=1} : i32[]
        %q = elementwise(%p, %zero) {fn="floordiv"} : i32[]
        %big = full() {value=1e30} : f32[]
        %r = cast(%big) : i32[]
        %s = elementwise(%q, %r) {fn="add"} : i32[]
        store(%y, %f, none, [%s])
    """)
    assert any("floordiv" in line for line in lines)
    assert any("cast" in line for line in lines)


def test_transcendental_functions_are_left_to_the_device() -> None:
    lines = fold("""
        %p = full() {value=2.5} : f32[]
        %q = elementwise(%p) {fn="exp"} : f32[]
        store(%y, %q, none, [%zero])
    """)
    assert any('"exp"' in line for line in lines)


def test_size_of_a_fixed_block_is_a_constant() -> None:
    lines = fold("""
        %p = block_size() {block="fixed"} : i32[]
        %q = block_size() {block="u"} : i32[]
        %s = elementwise(%p, %q) {fn="mul"} : i32[]
        store(%y, %f, none, [%s])
    """)
    assert lines[0] == "%p = full() {value=8} : i32[]"
    assert "block_size" in lines[1]


def test_branch_on_a_constant_is_its_arm() -> None:
    lines = fold("""
        %p = elementwise(%zero, %zero) {fn="eq"} : bool[]
        %v = if(%p) : f32[] () {
          store(%x, %f, none, [%zero])
          yield(%f)
        } () {
          %w0 = load(%x, none, [%a]) : f32[]
          yield(%w0)
        }
        store(%y, %v, none, [%a])
    """)
    assert lines == ["store(%x, %f, none, [%zero])", "store(%y, %f, none, [%a])"]


def test_nested_constant_branches_vanish_together() -> None:
    lines = fold("""
        %p = full() {value=false} : bool[]
        %v = if(%p) : f32[] () {
          yield(%f)
        } () {
          %w0 = if(%p) : f32[] () {
            yield(%f)
          } () {
            %l = load(%x, none, [%a]) : f32[]
            yield(%l)
          }
          yield(%w0)
        }
        store(%y, %v, none, [%a])
    """)
    assert [line.split("(")[0] for line in lines] == ["%l = load", "store"]


COUNTDOWN = """
    %start = full() {{value={start}}} : i32[]
    %left = while(%start) : i32[] (%p: i32[]) {{
      %go = elementwise(%p, %zero) {{fn="gt"}} : bool[]
      yield(%go)
    }} (%q: i32[]) {{
      %one = full() {{value=1}} : i32[]
      %less = elementwise(%q, %one) {{fn="sub"}} : i32[]
      store(%x, %f, none, [%less])
      yield(%less)
    }}
    store(%y, %f, none, [%left])
"""


def test_only_a_loop_that_never_runs_is_dropped() -> None:
    assert not any("while" in line for line in fold(COUNTDOWN.format(start=0)))
    assert any("while(%start)" in line for line in fold(COUNTDOWN.format(start=2)))
