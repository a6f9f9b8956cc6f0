"""Loops, branches and carried values: right results, without needless copies."""

from __future__ import annotations

import pytest
import torch

from tests.backends.triton.kernels import block, function, make, tensor
from tilesmith.schedule.schedule import LoopOptions

SYMBOLS = {"tile_m": 4, "tile_k": 4}


def per_row(body: str, *, k: int = 10, dtype: str = "f32") -> str:
    """``out[t] = body`` over tiles of 10 rows; the body defines %r : f32[tile_m]."""
    return function(
        "per_row",
        tensor("x", dtype, 10, k),
        tensor("out", dtype, 10),
        block("tile_m", 0),
        block("tile_k", 1),
        f"""
        %zero = full() {{value=0}} : i32[]
        %one = full() {{value=1}} : i32[]
        %ten = full() {{value=10}} : i32[]
        %k = full() {{value={k}}} : i32[]
        grid([%zero], [%ten]) {{blocks=["tile_m"], slot=0}}
        (%m0: i32[]) {{
          %rows = tile_index(%m0) {{block="tile_m"}} : i32[tile_m]
          {body}
          store(%out, %r, none, [%rows]) {{slot=9}}
        }}
        """,
    )


def run_rows(run, text: str, x: torch.Tensor, **options) -> tuple[torch.Tensor, str]:
    artifact = make(text, symbols=SYMBOLS, **options)
    given = {"x": x, "out": torch.full((10,), -7.0, dtype=x.dtype)}
    results = run(artifact, *(given[parameter.name] for parameter in artifact.parameters))
    return results[-1], artifact.source


SUM_LOOP = """
%start = full() {value=0.0} : f32[tile_m]
%r = loop([%zero], [%k], [%one], [%start]) {blocks=[""], slot=0} : f32[tile_m]
(%i: i32[], %acc: f32[tile_m]) {
  %x_tile = load(%x, none, [%rows, %i]) {slot=0} : f32[tile_m]
  %next = elementwise(%acc, %x_tile) {fn="add"} : f32[tile_m]
  yield(%next)
}
"""


@pytest.mark.parametrize("k", [0, 1, 10])
def test_loop_carries_an_accumulator_in_one_variable(run, k):
    x = torch.randn(10, k)
    result, source = run_rows(run, per_row(SUM_LOOP, k=k), x)
    torch.testing.assert_close(result, x.sum(1))
    assert "        r = r + x_tile\n" in source
    assert f"for i in tl.range({k}):" in source


SWAP_LOOP = """
%a0 = full() {value=0.0} : f32[tile_m]
%b0 = full() {value=1.0} : f32[tile_m]
%r, %other = loop([%zero], [%k], [%one], [%a0, %b0]) {blocks=[""]} : f32[tile_m], f32[tile_m]
(%i: i32[], %a: f32[tile_m], %b: f32[tile_m]) {
  %sum = elementwise(%a, %b) {fn="add"} : f32[tile_m]
  yield(%b, %sum)
}
"""


def test_values_that_change_places_do_not_overwrite_each_other(run):
    result, _ = run_rows(run, per_row(SWAP_LOOP), torch.zeros(10, 10))
    assert result.tolist() == [55.0] * 10


ROTATE_LOOP = """
%a0 = full() {value=1.0} : f32[tile_m]
%b0 = full() {value=2.0} : f32[tile_m]
%c0 = full() {value=3.0} : f32[tile_m]
%r, %q, %p = loop([%zero], [%k], [%one], [%a0, %b0, %c0]) {blocks=[""]}
: f32[tile_m], f32[tile_m], f32[tile_m]
(%i: i32[], %a: f32[tile_m], %b: f32[tile_m], %c: f32[tile_m]) {
  yield(%b, %c, %a)
}
"""


def test_rotating_values_need_one_temporary(run):
    result, source = run_rows(run, per_row(ROTATE_LOOP), torch.zeros(10, 10))
    assert result.tolist() == [2.0] * 10
    assert source.count("next_") == 2


OLD_VALUE_LOOP = """
%start = full() {value=0.0} : f32[tile_m]
%s0 = full() {value=0.0} : f32[tile_m]
%peak, %r = loop([%zero], [%k], [%one], [%start, %s0]) {blocks=[""]} : f32[tile_m], f32[tile_m]
(%i: i32[], %old: f32[tile_m], %sum: f32[tile_m]) {
  %x_tile = load(%x, none, [%rows, %i]) {slot=0} : f32[tile_m]
  %new = elementwise(%old, %x_tile) {fn="maximum"} : f32[tile_m]
  %rise = elementwise(%new, %old) {fn="sub"} : f32[tile_m]
  %total = elementwise(%sum, %rise) {fn="add"} : f32[tile_m]
  yield(%new, %total)
}
"""


def test_old_value_is_kept_while_it_is_still_needed(run):
    x = torch.randn(10, 10)
    result, source = run_rows(run, per_row(OLD_VALUE_LOOP), x)
    torch.testing.assert_close(result, x.amax(1).clamp(min=0), rtol=1e-5, atol=1e-5)
    assert "        peak = new\n" in source


NESTED_LOOP = """
%start = full() {value=0.0} : f32[tile_m]
%r = loop([%zero], [%ten], [%one], [%start]) {blocks=[""], slot=0} : f32[tile_m]
(%i: i32[], %outer: f32[tile_m]) {
  %mid = loop([%zero], [%i], [%one], [%outer]) {blocks=[""], slot=1} : f32[tile_m]
  (%j: i32[], %inner: f32[tile_m]) {
    %x_tile = load(%x, none, [%rows, %j]) {slot=0} : f32[tile_m]
    %next = elementwise(%inner, %x_tile) {fn="add"} : f32[tile_m]
    yield(%next)
  }
  yield(%mid)
}
"""


def test_nested_loops_share_the_accumulator(run):
    x = torch.randn(10, 10)
    result, source = run_rows(run, per_row(NESTED_LOOP), x)
    weights = torch.arange(9, -1, -1, dtype=torch.float64)
    torch.testing.assert_close(result.double(), (x.double() * weights).sum(1), rtol=1e-5, atol=1e-5)
    assert "mid" not in source


RESTARTED_LOOP = """
%start = full() {value=0.0} : f32[tile_m]
%seed = load(%x, none, [%rows, %zero]) {slot=0} : f32[tile_m]
%r = loop([%zero], [%k], [%one], [%start]) {blocks=[""], slot=0} : f32[tile_m]
(%i: i32[], %outer: f32[tile_m]) {
  %grown = loop([%zero], [%i], [%one], [%seed]) {blocks=[""], slot=1} : f32[tile_m]
  (%j: i32[], %inner: f32[tile_m]) {
    %next = elementwise(%inner, %seed) {fn="add"} : f32[tile_m]
    yield(%next)
  }
  %sum = elementwise(%outer, %grown) {fn="add"} : f32[tile_m]
  yield(%sum)
}
"""


def test_initial_value_from_outside_survives_the_inner_loop(run):
    x = torch.randn(10, 10)
    result, _ = run_rows(run, per_row(RESTARTED_LOOP), x)
    torch.testing.assert_close(result.double(), x[:, 0].double() * 55, rtol=1e-5, atol=1e-5)


BRANCH = """
%start = full() {value=0.0} : f32[tile_m]
%five = full() {value=5} : i32[]
%r = loop([%zero], [%k], [%one], [%start]) {blocks=[""], slot=0} : f32[tile_m]
(%i: i32[], %acc: f32[tile_m]) {
  %early = elementwise(%i, %five) {fn="lt"} : bool[]
  %chosen = if(%early) : f32[tile_m]
  () {
    %x_tile = load(%x, none, [%rows, %i]) {slot=0} : f32[tile_m]
    %more = elementwise(%acc, %x_tile) {fn="add"} : f32[tile_m]
    yield(%more)
  }
  () {
    yield(%acc)
  }
  yield(%chosen)
}
"""


def test_branch_that_keeps_the_old_value_has_no_else(run):
    x = torch.randn(10, 10)
    result, source = run_rows(run, per_row(BRANCH), x)
    torch.testing.assert_close(result, x[:, :5].sum(1), rtol=1e-5, atol=1e-5)
    assert "        if i < 5:\n" in source
    assert "            r = r + x_tile\n" in source
    assert "else:" not in source


TWO_ARMS = """
%half = elementwise(%m0, %ten) {fn="lt"} : bool[]
%four = full() {value=4} : i32[]
%low = elementwise(%m0, %four) {fn="lt"} : bool[]
%r = if(%low) : f32[tile_m]
() {
  %a = load(%x, none, [%rows, %zero]) {slot=0} : f32[tile_m]
  yield(%a)
}
() {
  %b = load(%x, none, [%rows, %one]) {slot=1} : f32[tile_m]
  %minus = elementwise(%b) {fn="neg"} : f32[tile_m]
  yield(%minus)
}
"""


def test_both_arms_assign_the_result(run):
    x = torch.randn(10, 10)
    result, source = run_rows(run, per_row(TWO_ARMS), x)
    assert torch.equal(result, torch.cat([x[:4, 0], -x[4:, 1]]))
    assert "half" not in source


WHILE = """
%start = full() {value=1.0} : f32[]
%limit = full() {value=100.0} : f32[]
%two = full() {value=2.0} : f32[]
%x_tile = load(%x, none, [%rows, %zero]) {slot=0} : f32[tile_m]
%power, %steps = while(%start, %zero) : f32[], i32[]
(%p: f32[], %n: i32[]) {
  %more = elementwise(%p, %limit) {fn="lt"} : bool[]
  yield(%more)
}
(%q: f32[], %n1: i32[]) {
  %twice = elementwise(%q, %two) {fn="mul"} : f32[]
  %n2 = elementwise(%n1, %one) {fn="add"} : i32[]
  yield(%twice, %n2)
}
%column = expand_dims(%power) {axes=[0]} : f32[1]
%all = broadcast(%column) : f32[tile_m]
%r = elementwise(%x_tile, %all) {fn="mul"} : f32[tile_m]
"""


def test_while_with_a_pure_condition_tests_it_in_the_header(run):
    x = torch.randn(10, 10)
    result, source = run_rows(run, per_row(WHILE), x)
    assert torch.equal(result, x[:, 0] * 128)
    assert "while power < 100.0:" in source


WHILE_LOADING = """
%start = full() {value=0.0} : f32[tile_m]
%bound = full() {value=0.0} : f32[]
%r, %steps = while(%start, %zero) : f32[tile_m], i32[]
(%p: f32[tile_m], %n: i32[]) {
  %flag = load(%x, none, [%zero, %n]) {slot=0} : f32[]
  %more = elementwise(%flag, %bound) {fn="gt"} : bool[]
  yield(%more)
}
(%q: f32[tile_m], %n1: i32[]) {
  %x_tile = load(%x, none, [%rows, %n1]) {slot=1} : f32[tile_m]
  %sum = elementwise(%q, %x_tile) {fn="add"} : f32[tile_m]
  %n2 = elementwise(%n1, %one) {fn="add"} : i32[]
  yield(%sum, %n2)
}
"""


def test_while_that_reads_memory_reads_it_before_every_turn(run):
    x = torch.rand(10, 10) + 0.1
    x[0, 6] = -1.0
    result, _ = run_rows(run, per_row(WHILE_LOADING), x)
    torch.testing.assert_close(result, x[:, :6].sum(1), rtol=1e-5, atol=1e-5)


TILED_LOOP = """
%start = full() {value=0.0} : f32[tile_m]
%i = expand_dims(%rows) {axes=[1]} : i32[tile_m, 1]
%r = loop([%two], [%k], [], [%start]) {blocks=["tile_k"], slot=0} : f32[tile_m]
(%k0: i32[], %acc: f32[tile_m]) {
  %cols = tile_index(%k0) {block="tile_k"} : i32[tile_k]
  %j = expand_dims(%cols) {axes=[0]} : i32[1, tile_k]
  %x_tile = load(%x, none, [%i, %j]) {slot=0} : f32[tile_m, tile_k]
  %e = elementwise(%x_tile) {fn="exp"} : f32[tile_m, tile_k]
  %valid = mask(%e) {fill=0.0, axes=[1]} : f32[tile_m, tile_k]
  %part = reduce(%valid) {axis=1, kind="sum"} : f32[tile_m]
  %next = elementwise(%acc, %part) {fn="add"} : f32[tile_m]
  yield(%next)
}
"""


@pytest.mark.parametrize("k", [2, 3, 6, 7, 10])
def test_loop_from_an_offset_masks_its_last_tile(run, k):
    text = per_row("%two = full() {value=2} : i32[]\n" + TILED_LOOP, k=k)
    x = torch.randn(10, k)
    result, source = run_rows(run, text, x)
    expected = x[:, 2:].double().exp().sum(1)
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)
    assert ("mask_k" in source) == ((k - 2) % 4 != 0)


TWO_AXIS_LOOP = """
%start = full() {value=0.0} : f32[tile_m]
%r = loop([%zero, %zero], [%ten, %k], [%one, %one], [%start]) {blocks=["", ""]} : f32[tile_m]
(%a: i32[], %b: i32[], %acc: f32[tile_m]) {
  %x_tile = load(%x, none, [%a, %b]) {slot=0} : f32[]
  %c = expand_dims(%x_tile) {axes=[0]} : f32[1]
  %all = broadcast(%c) : f32[tile_m]
  %next = elementwise(%acc, %all) {fn="add"} : f32[tile_m]
  yield(%next)
}
"""


def test_loop_over_two_axes(run):
    x = torch.randn(10, 10)
    result, source = run_rows(run, per_row(TWO_AXIS_LOOP), x)
    torch.testing.assert_close(result.double(), x.double().sum().expand(10), rtol=1e-4, atol=1e-4)
    assert source.index("for a in") < source.index("for b in")


@pytest.mark.parametrize(("is_ordered", "stages"), [("false", 3), ("true", 1)])
def test_a_loop_that_reads_what_it_stored_has_one_stage(is_ordered, stages):
    loop = SUM_LOOP.replace(
        "slot=0} : f32[tile_m]\n(%i", f"slot=0, is_ordered={is_ordered}}} : f32[tile_m]\n(%i"
    )
    source = make(per_row(loop), symbols=SYMBOLS, loops={0: LoopOptions(num_stages=3)}).source
    assert f"tl.range(10, num_stages={stages})" in source
