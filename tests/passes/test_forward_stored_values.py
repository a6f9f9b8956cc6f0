"""A load of what was just stored is the stored value; every doubt keeps the load."""

from __future__ import annotations

import pytest

from tests.passes.program_text import body_after, make_program
from tilesmith.passes.accesses import forward_stored_values


def loads_left(body: str) -> list[str]:
    lines = body_after(forward_stored_values, make_program(body))
    return [line.split(" = ")[0] for line in lines if " = load(" in line]


def test_load_of_the_stored_elements_is_the_value() -> None:
    body = """
        %v = load(%x, none, [%i]) : f32[t]
        store(%y, %v, none, [%i])
        %w0 = load(%y, none, [%i]) : f32[t]
        store(%x, %w0, none, [%i])
    """
    assert loads_left(body) == ["%v"]
    assert "store(%x, %v, none, [%i])" in body_after(forward_stored_values, make_program(body))


def test_equal_indices_need_not_be_one_value() -> None:
    body = """
        %v = load(%x, none, [%i]) : f32[t]
        store(%y, %v, none, [%i])
        %j = tile_index(%b) {block="t"} : i32[t]
        %w0 = load(%y, none, [%j]) : f32[t]
        store(%x, %w0, none, [%i])
    """
    assert loads_left(body) == ["%v"]


def test_value_reaches_a_later_loop() -> None:
    body = """
        %v = load(%x, none, [%i]) : f32[t]
        store(%y, %v, none, [%i])
        loop([%zero], [%hundred], [], []) {blocks=["u"]} (%k: i32[]) {
          %w0 = load(%y, none, [%i]) : f32[t]
          store(%x, %w0, none, [%i])
        }
    """
    assert loads_left(body) == ["%v"]


@pytest.mark.parametrize(
    "between",
    [
        "store(%y, %v, none, [%a])",
        "%old = atomic(%y, %f, none, [%a]) {kind=\"add\"} : f32[]",
        "%p = full() {value=64} : u64[] store(%x, %f, none, [%a], bases=%p)",
        "if(%c) () { store(%y, %f, none, [%a]) } () { }",
        "loop([%zero], [%hundred], [], []) {blocks=[\"u\"]} (%m: i32[]) "
        "{ store(%y, %f, none, [%m]) }",
    ],
)  # fmt: skip
def test_another_write_between_keeps_the_load(between: str) -> None:
    between = between.replace("%v, none, [%a]", "%f, none, [%a]")
    body = f"""
        %v = load(%x, none, [%i]) : f32[t]
        store(%y, %v, none, [%i])
        {between}
        %w0 = load(%y, none, [%i]) : f32[t]
        store(%x, %w0, none, [%i])
    """
    assert loads_left(body) == ["%v", "%w0"]


def test_write_to_another_group_does_not_matter() -> None:
    body = """
        %v = load(%x, none, [%i]) : f32[t]
        store(%y, %v, none, [%i])
        store(%x, %v, none, [%i])
        %w0 = load(%y, none, [%i]) : f32[t]
        store(%x, %w0, none, [%i])
    """
    assert loads_left(body) == ["%v"]


@pytest.mark.parametrize(("store", "load"), [("%m", "none"), ("none", "%m")])
def test_masks_keep_the_load(store: str, load: str) -> None:
    body = f"""
        %v = load(%x, none, [%i]) : f32[t]
        %m = elementwise(%v) {{fn="isnan"}} : bool[t]
        store(%y, %v, {store}, [%i])
        %w0 = load(%y, {load}, [%i]) : f32[t]
        store(%x, %w0, none, [%i])
    """
    assert loads_left(body) == ["%v", "%w0"]


def test_indices_that_may_repeat_keep_the_load() -> None:
    body = """
        %v = load(%x, none, [%i]) : f32[t]
        %g = cast(%v) : i32[t]
        store(%y, %v, none, [%g])
        %w0 = load(%y, none, [%g]) : f32[t]
        store(%x, %w0, none, [%i])
    """
    assert loads_left(body) == ["%v", "%w0"]


def test_loop_that_stores_later_does_not_see_the_value_from_before() -> None:
    body = """
        %v = load(%x, none, [%i]) : f32[t]
        store(%y, %v, none, [%i])
        loop([%zero], [%hundred], [], []) {blocks=["u"]} (%k: i32[]) {
          %w0 = load(%y, none, [%i]) : f32[t]
          %e = elementwise(%w0) {fn="exp"} : f32[t]
          store(%y, %e, none, [%i])
        }
    """
    assert loads_left(body) == ["%v", "%w0"]


def test_value_stored_in_a_branch_is_not_known_after_it() -> None:
    body = """
        %v = load(%x, none, [%i]) : f32[t]
        if(%c) () {
          store(%y, %v, none, [%i])
        } () { }
        %w0 = load(%y, none, [%i]) : f32[t]
        store(%x, %w0, none, [%i])
    """
    assert loads_left(body) == ["%v", "%w0"]


def test_whole_block_stored_outside_is_not_the_tile_inside() -> None:
    body = """
        %j = arange() : i32[u]
        %v = load(%x, none, [%j]) : f32[u]
        store(%y, %v, none, [%j])
        loop([%zero], [%hundred], [], []) {blocks=["u"]} (%k: i32[]) {
          %w0 = load(%y, none, [%j]) : f32[u]
          store(%x, %w0, none, [%j])
        }
    """
    assert loads_left(body) == ["%v", "%w0"]


def test_loop_that_waits_for_another_program_reads_memory() -> None:
    body = """
        store(%y, %f, none, [%zero])
        while() () {
          %flag = load(%y, none, [%zero]) : f32[]
          %go = elementwise(%flag, %f) {fn="eq"} : bool[]
          yield(%go)
        } () { }
        %after = load(%y, none, [%zero]) : f32[]
        store(%x, %after, none, [%zero])
    """
    assert loads_left(body) == ["%flag", "%after"]
