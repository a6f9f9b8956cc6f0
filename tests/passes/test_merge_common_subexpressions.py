"""Equal expressions are computed once where that cannot change what they mean."""

from __future__ import annotations

from tests.passes.program_text import body_after, make_program
from tilesmith.passes.expressions import merge_common_subexpressions


def count_after(body: str, marker: str) -> int:
    lines = body_after(merge_common_subexpressions, make_program(body))
    return sum(marker in line for line in lines)


def test_equal_pure_ops_merge_and_commuted_operands_count_as_equal() -> None:
    body = """
        %v = load(%x, none, [%i]) : f32[t]
        %w0 = load(%y, none, [%i]) : f32[t]
        %p = elementwise(%v, %w0) {fn="add"} : f32[t]
        %q = elementwise(%w0, %v) {fn="add"} : f32[t]
        %r = elementwise(%v, %w0) {fn="sub"} : f32[t]
        %s = elementwise(%w0, %v) {fn="sub"} : f32[t]
        store(%x, %p, none, [%i])
        store(%y, %q, none, [%i])
        store(%x, %r, none, [%i])
        store(%y, %s, none, [%i])
    """
    assert count_after(body, '"add"') == 1
    assert count_after(body, '"sub"') == 2


def test_constants_of_different_kinds_or_signs_stay_apart() -> None:
    body = """
        %p = full() {value=0.0} : f32[t]
        %q = full() {value=-0.0} : f32[t]
        %r = full() {value=0.0} : f32[t]
        store(%x, %p, none, [%i])
        store(%y, %q, none, [%i])
        store(%y, %r, none, [%i])
    """
    assert count_after(body, "full") == 2


def test_loads_merge_only_without_a_write_between() -> None:
    body = """
        %p = load(%x, none, [%i]) : f32[t]
        %q = load(%x, none, [%i]) : f32[t]
        store(%y, %q, none, [%i])
        %r = load(%x, none, [%i]) : f32[t]
        store(%x, %r, none, [%i])
        %s = load(%x, none, [%i]) : f32[t]
        store(%y, %s, none, [%i])
        store(%y, %p, none, [%i])
    """
    assert count_after(body, "load") == 2


def test_loads_at_computed_addresses_merge_only_without_any_write_between() -> None:
    body = """
        %p = full() {{value=64}} : u64[]
        %a1 = load(%x, none, [%i], bases=%p) : f32[t]
        {between}
        %a2 = load(%x, none, [%i], bases=%p) : f32[t]
        %s = elementwise(%a1, %a2) {{fn="add"}} : f32[t]
        store(%y, %s, none, [%i])
    """
    write = "store(%h, %q, none, [%a, %a])"
    written = f"%q = full() {{value=1.0}} : bf16[] {write}"
    assert count_after(body.format(between=""), "load(") == 1
    assert count_after(body.format(between=written), "load(") == 2


def test_load_in_a_loop_that_writes_is_not_the_one_before_it() -> None:
    body = """
        %p = load(%x, none, [%i]) : f32[t]
        store(%y, %p, none, [%i])
        loop([%zero], [%hundred], [], []) {blocks=["u"]} (%k: i32[]) {
          %q = load(%x, none, [%i]) : f32[t]
          store(%x, %q, none, [%i])
        }
        %r = load(%x, none, [%i]) : f32[t]
        store(%y, %r, none, [%i])
    """
    assert count_after(body, "load") == 3


def test_load_in_a_reading_loop_is_the_one_before_it() -> None:
    body = """
        %p = load(%x, none, [%i]) : f32[t]
        store(%y, %p, none, [%i])
        loop([%zero], [%hundred], [], []) {blocks=["u"]} (%k: i32[]) {
          %q = load(%x, none, [%i]) : f32[t]
          store(%y, %q, none, [%i])
        }
    """
    assert count_after(body, "load") == 1


def test_load_in_a_while_loop_may_wait_for_another_program() -> None:
    body = """
        %p = load(%x, none, [%zero]) : f32[]
        store(%y, %p, none, [%zero])
        while() () {
          %q = load(%x, none, [%zero]) : f32[]
          %go = elementwise(%q, %f) {fn="lt"} : bool[]
          yield(%go)
        } () {
        }
    """
    assert count_after(body, "load") == 2


def test_acquiring_atomic_renews_all_loads() -> None:
    body = """
        %p = load(%x, none, [%zero]) : f32[]
        %old = atomic(%y, %p, none, [%zero]) {kind="add", order="acquire"} : f32[]
        %q = load(%x, none, [%zero]) : f32[]
        store(%y, %q, none, [%a])
    """
    assert count_after(body, " = load") == 2
    assert count_after(body.replace("acquire", "relaxed"), " = load") == 1


def test_branches_see_what_is_before_them_but_not_each_other() -> None:
    body = """
        %p = elementwise(%a, %a) {fn="add"} : i32[]
        %v = load(%x, none, [%p]) : f32[]
        if(%c) () {
          %q = elementwise(%a, %a) {fn="add"} : i32[]
          %r = elementwise(%a, %q) {fn="mul"} : i32[]
          store(%y, %v, none, [%r])
        } () {
          %s = elementwise(%a, %p) {fn="mul"} : i32[]
          store(%y, %v, none, [%s])
        }
    """
    assert count_after(body, '"add"') == 1
    assert count_after(body, '"mul"') == 2


def test_reduction_of_a_whole_block_is_not_that_of_its_valid_lanes() -> None:
    body = """
        %ones = full() {value=1.0} : f32[u]
        %whole = reduce(%ones) {axis=0, kind="sum"} : f32[]
        store(%y, %whole, none, [%zero])
        loop([%zero], [%hundred], [], []) {blocks=["u"]} (%k: i32[]) {
          %valid = reduce(%ones) {axis=0, kind="sum"} : f32[]
          store(%y, %valid, none, [%k])
        }
    """
    assert count_after(body, "reduce") == 2


def test_nothing_to_merge_gives_the_same_object() -> None:
    program = make_program("store(%x, %f, none, [%zero])")
    assert merge_common_subexpressions(program) is program
