"""Grids, loops and branches: order, partial tiles, carried values, cropping."""

from __future__ import annotations

import pytest
import torch

from tests.interpreter.run_text import in_program, over_tiles, run_text

SIZES = [0, 1, 3, 4, 5, 8, 11]


def log_pair(first: str, second: str) -> str:
    """Append two scalars to the log; values are named after them."""
    return f"""
      %at_{first} = atomic(%count, %one, none, [%zero]) {{kind="add"}} : i64[]
      store(%log, %{first}, none, [%at_{first}, %zero])
      store(%log, %{second}, none, [%at_{first}, %one])"""


def test_programs_and_iterations_run_in_row_major_order():
    log, count = torch.full((12, 2), -1), torch.zeros(1, dtype=torch.int64)
    body = f"""
  %two = full() {{value=2}} : i64[]
  %three = full() {{value=3}} : i64[]
  %five = full() {{value=5}} : i64[]
  grid([%one, %zero], [%three, %five]) {{blocks=["", "m"]}} (%a: i64[], %b: i64[]) {{
    {log_pair("a", "b")}
  }}
  grid([%zero], [%one]) {{blocks=[""]}} (%pid: i64[]) {{
    loop([%zero, %one], [%three, %five], [%two], []) {{blocks=["", "m"]}} (%c: i64[], %d: i64[]) {{
      {log_pair("c", "d")}
    }}
  }}"""
    run_text(body, {"log": log, "count": count}, {"m": 2})
    grid = [[a, b] for a in (1, 2) for b in (0, 2, 4)]
    loop = [[a, b] for a in (0, 2) for b in (1, 3)]
    assert count.item() == len(grid) + len(loop)
    assert log[: count.item()].tolist() == grid + loop


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("columns", SIZES)
def test_row_sums_over_partial_tiles(rows: int, columns: int):
    x, out = torch.arange(rows * columns).reshape(rows, columns), torch.full((rows,), -1)
    body = over_tiles(
        f"""
    %rows = expand_dims(%i) {{axes=[1]}} : i64[m, 1]
    %width = full() {{value={columns}}} : i64[]
    %start = full() {{value=0}} : i64[m]
    %total = loop([%zero], [%width], [], [%start]) {{blocks=["n"]}} : i64[m]
        (%bn: i64[], %acc: i64[m]) {{
      %j = tile_index(%bn) {{block="n"}} : i64[n]
      %v = load(%x, none, [%rows, %j]) : i64[m, n]
      %s = reduce(%v) {{axis=1, kind="sum"}} : i64[m]
      %next = elementwise(%acc, %s) {{fn="add"}} : i64[m]
      yield(%next)
    }}
    store(%out, %total, none, [%i])""",
        rows,
    )
    run_text(body, {"x": x, "out": out}, {"m": 4, "n": 4}, races=True)
    assert out.tolist() == x.sum(1).tolist()


@pytest.mark.parametrize("size", SIZES)
def test_carried_value_over_the_loops_own_block_keeps_lanes_of_earlier_tiles(size: int):
    x, out = torch.arange(1, size + 1), torch.full((4,), -1)
    body = in_program(f"""
    %end = full() {{value={size}}} : i64[]
    %start = full() {{value=0}} : i64[m]
    %sums = loop([%zero], [%end], [], [%start]) {{blocks=["m"]}} : i64[m]
        (%b: i64[], %acc: i64[m]) {{
      %i = tile_index(%b) {{block="m"}} : i64[m]
      %v = load(%x, none, [%i]) : i64[m]
      %next = elementwise(%acc, %v) {{fn="add"}} : i64[m]
      yield(%next)
    }}
    %lanes = arange() : i64[m]
    store(%out, %sums, none, [%lanes])""")
    run_text(body, {"x": x, "out": out}, {"m": 4})
    assert out.tolist() == [int(x[lane::4].sum()) for lane in range(4)]


@pytest.mark.parametrize("size", SIZES)
def test_value_made_outside_is_cropped_inside(size: int):
    x, weights, out = (
        torch.arange(1, size + 1),
        torch.tensor([1, 10, 100, 1000]),
        torch.zeros(1, dtype=torch.int64),
    )
    body = in_program(f"""
    %end = full() {{value={size}}} : i64[]
    %lanes = arange() : i64[m]
    %w = load(%weights, none, [%lanes]) : i64[m]
    %sum = loop([%zero], [%end], [], [%zero]) {{blocks=["m"]}} : i64[] (%b: i64[], %acc: i64[]) {{
      %i = tile_index(%b) {{block="m"}} : i64[m]
      %v = load(%x, none, [%i]) : i64[m]
      %p = elementwise(%v, %w) {{fn="mul"}} : i64[m]
      %shifted = elementwise(%p, %lanes) {{fn="add"}} : i64[m]
      %s = reduce(%shifted) {{axis=0, kind="sum"}} : i64[]
      %next = elementwise(%acc, %s) {{fn="add"}} : i64[]
      yield(%next)
    }}
    %again = reduce(%w) {{axis=0, kind="sum"}} : i64[]
    %both = elementwise(%sum, %again) {{fn="add"}} : i64[]
    store(%out, %both, none, [%zero])""")
    run_text(body, {"x": x, "weights": weights, "out": out}, {"m": 4})
    expected = sum(int(v) * 10 ** (i % 4) + i % 4 for i, v in enumerate(x)) + 1111
    assert out.item() == expected


@pytest.mark.parametrize("outer", [1, 3, 4, 5])
@pytest.mark.parametrize("inner", [1, 3, 4, 5, 9])
def test_nested_loops_over_one_block_crop_on_their_own(outer: int, inner: int):
    """A value from outside both loops has all its lanes in the inner one."""
    x, y, weights = (
        torch.arange(1, outer + 1),
        torch.arange(1, inner + 1),
        torch.tensor([1, 7, 50, 300]),
    )
    out = torch.zeros(1, dtype=torch.int64)
    body = in_program(f"""
    %outer_end = full() {{value={outer}}} : i64[]
    %inner_end = full() {{value={inner}}} : i64[]
    %lanes = arange() : i64[m]
    %w = load(%weights, none, [%lanes]) : i64[m]
    loop([%zero], [%outer_end], [], []) {{blocks=["m"]}} (%b: i64[]) {{
      %i = tile_index(%b) {{block="m"}} : i64[m]
      %v = load(%x, none, [%i]) : i64[m]
      loop([%zero], [%inner_end], [], []) {{blocks=["m"]}} (%c: i64[]) {{
        %j = tile_index(%c) {{block="m"}} : i64[m]
        %u = load(%y, none, [%j]) : i64[m]
        %p = elementwise(%u, %w) {{fn="mul"}} : i64[m]
        %s = reduce(%p) {{axis=0, kind="sum"}} : i64[]
        %old = atomic(%out, %s, none, [%zero]) {{kind="add"}} : i64[]
      }}
      %q = elementwise(%v, %w) {{fn="mul"}} : i64[m]
      %t = reduce(%q) {{axis=0, kind="sum"}} : i64[]
      %old2 = atomic(%out, %t, none, [%zero]) {{kind="add"}} : i64[]
    }}""")
    run_text(body, {"x": x, "y": y, "weights": weights, "out": out}, {"m": 4})

    def weighted(values: torch.Tensor) -> int:
        return sum(int(value) * int(weights[lane % 4]) for lane, value in enumerate(values))

    num_outer_tiles = -(-outer // 4)
    assert out.item() == weighted(x) + num_outer_tiles * weighted(y)


@pytest.mark.parametrize("size", [1, 3, 4, 5, 8, 9])
def test_carried_value_of_the_outer_loop_used_in_an_inner_one_over_the_same_block(size: int):
    """Each outer tile adds its lanes to the state; the inner loop sums the state lane by lane."""
    x, out = torch.arange(1, size + 1), torch.zeros(1, dtype=torch.int64)
    body = in_program(f"""
    %end = full() {{value={size}}} : i64[]
    %four = full() {{value=4}} : i64[]
    %start = full() {{value=0}} : i64[m]
    %r = loop([%zero], [%end], [], [%start]) {{blocks=["m"]}} : i64[m] (%b: i64[], %acc: i64[m]) {{
      %i = tile_index(%b) {{block="m"}} : i64[m]
      %v = load(%x, none, [%i]) : i64[m]
      loop([%zero], [%four], [], []) {{blocks=["m"]}} (%c: i64[]) {{
        %s = reduce(%acc) {{axis=0, kind="sum"}} : i64[]
        %old = atomic(%out, %s, none, [%zero]) {{kind="add"}} : i64[]
      }}
      %next = elementwise(%acc, %v) {{fn="add"}} : i64[m]
      yield(%next)
    }}""")
    run_text(body, {"x": x, "out": out}, {"m": 4})
    assert out.item() == sum(int(x[:start].sum()) for start in range(0, size, 4))


@pytest.mark.parametrize("size", [1, 3, 4, 5])
def test_products_of_blocks_are_cropped_lane_by_lane(size: int):
    """[m*2] made outside: lanes of the last tile are the first rows, both columns of each."""
    table, out = torch.arange(8), torch.full((4, 2), -1)
    body = in_program(f"""
    %end = full() {{value={size}}} : i64[]
    %flat_lanes = arange() : i64[8]
    %lanes = reshape(%flat_lanes) : i64[8]
    %a = arange() : i64[m]
    %rows = expand_dims(%a) {{axes=[1]}} : i64[m, 1]
    %two = arange() : i64[2]
    %matrix = load(%table, none, [%rows, %two]) : i64[m, 2]
    %flat = reshape(%matrix) : i64[m*2]
    %r = loop([%zero], [%end], [], [%flat]) {{blocks=["m"]}} : i64[m*2]
        (%b: i64[], %acc: i64[m*2]) {{
      %next = elementwise(%acc, %flat) {{fn="add"}} : i64[m*2]
      yield(%next)
    }}
    %square = reshape(%r) : i64[m, 2]
    store(%out, %square, none, [%rows, %two])""")
    run_text(body, {"table": table.view(4, 2), "out": out}, {"m": 4})
    times = [1 + sum(start + row < size for start in range(0, size, 4)) for row in range(4)]
    expected = table.view(4, 2) * torch.tensor(times)[:, None]
    assert out.tolist() == expected.tolist()


@pytest.mark.parametrize("size", SIZES)
def test_plain_axes_step_and_values_swap_between_iterations(size: int):
    out = torch.zeros(3, dtype=torch.int64)
    body = in_program(f"""
    %end = full() {{value={size}}} : i64[]
    %three = full() {{value=3}} : i64[]
    %r, %s, %n = loop([%one], [%end], [%three], [%zero, %one, %zero]) {{blocks=[""]}} :
        i64[], i64[], i64[] (%j: i64[], %a: i64[], %b: i64[], %c: i64[]) {{
      %sum = elementwise(%c, %j) {{fn="add"}} : i64[]
      yield(%b, %a, %sum)
    }}
    %two = full() {{value=2}} : i64[]
    store(%out, %r, none, [%zero])
    store(%out, %s, none, [%one])
    store(%out, %n, none, [%two])""")
    run_text(body, {"out": out}, {})
    steps = list(range(1, size, 3))
    assert out.tolist() == [len(steps) % 2, 1 - len(steps) % 2, sum(steps)]


@pytest.mark.parametrize("start", [1, 6, 7, 27])
def test_while_runs_until_the_condition_fails(start: int):
    out = torch.zeros(2, dtype=torch.int64)
    body = in_program(f"""
    %n = full() {{value={start}}} : i64[]
    %two = full() {{value=2}} : i64[]
    %three = full() {{value=3}} : i64[]
    %last, %steps = while(%n, %zero) : i64[], i64[] (%v: i64[], %s: i64[]) {{
      %go = elementwise(%v, %one) {{fn="gt"}} : bool[]
      yield(%go)
    }} (%w: i64[], %t: i64[]) {{
      %bit = elementwise(%w, %one) {{fn="and"}} : i64[]
      %odd = elementwise(%bit, %one) {{fn="eq"}} : bool[]
      %next = if(%odd) : i64[] () {{
        %p = elementwise(%w, %three, %one) {{fn="fma"}} : i64[]
        yield(%p)
      }} () {{
        %h = elementwise(%w, %two) {{fn="floordiv"}} : i64[]
        yield(%h)
      }}
      %count = elementwise(%t, %one) {{fn="add"}} : i64[]
      yield(%next, %count)
    }}
    store(%out, %last, none, [%zero])
    store(%out, %steps, none, [%one])""")
    run_text(body, {"out": out}, {})
    value, steps = start, 0
    while value > 1:
        value, steps = value * 3 + 1 if value % 2 else value // 2, steps + 1
    assert out.tolist() == [value, steps]


@pytest.mark.parametrize("flag", [True, False])
def test_branch_without_results_has_effects(flag: bool):
    out = torch.zeros(2)
    body = in_program("""
    %v = full() {value=1.0} : f32[]
    if(%flag) () {
      store(%out, %v, none, [%zero])
    } () {
      store(%out, %v, none, [%one])
    }""")
    run_text(body, {"out": out, "flag": flag}, {})
    assert out.tolist() == ([1.0, 0.0] if flag else [0.0, 1.0])


def test_tiles_may_start_anywhere():
    x, out = torch.arange(20), torch.full((20,), -1)
    body = """
    %lo = full() {value=3} : i64[]
    %hi = full() {value=14} : i64[]
    grid([%lo], [%hi]) {blocks=["m"]} (%b: i64[]) {
      %i = tile_index(%b) {block="m"} : i64[m]
      %v = load(%x, none, [%i]) : i64[m]
      store(%out, %v, none, [%i])
    }"""
    run_text(body, {"x": x, "out": out}, {"m": 4}, races=True)
    assert out.tolist() == [i if 3 <= i < 14 else -1 for i in range(20)]


def test_block_size_is_never_cropped():
    out = torch.zeros(5, dtype=torch.int64)
    body = over_tiles(
        """
    %size = block_size() {block="m"} : i64[]
    %s = expand_dims(%size) {axes=[0]} : i64[1]
    %t = broadcast(%s) : i64[m]
    store(%out, %t, none, [%i])""",
        5,
    )
    run_text(body, {"out": out}, {"m": 4})
    assert out.tolist() == [4] * 5
