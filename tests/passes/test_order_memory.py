"""Barriers stand where a program's own accesses may meet, and nowhere else."""

from __future__ import annotations

import pytest

from tests.passes.program_text import body_lines, make_program
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.verifier import verify_function
from tilesmith.passes.accesses import order_memory


def order(body: str) -> Function:
    after = order_memory(make_program(body))
    verify_function(after)
    assert order_memory(after) is after, "a second run must find nothing to do"
    return after


def shape_of(body: str) -> list[str]:
    """The accesses, loops and barriers of the body, one letter each: S, L, A, (, ), B."""
    letters = {"store": "S", "load": "L", "atomic": "A", "program_barrier": "B"}
    found: list[str] = []
    for line in body_lines(order(body)):
        name = line.split(" = ")[-1].split("(")[0]
        if name in letters:
            found.append(letters[name])
        elif name in ("loop", "while", "if"):
            found.append("(")
        elif line == "}":
            found.append(")")
    return found


def ordered_loops(body: str) -> list[bool]:
    return [op.is_ordered for op in walk_function(order(body)) if isinstance(op, Loop)]


def loop(inside: str) -> str:
    header = 'loop([%zero], [%hundred], [], []) {blocks=["u"]} (%k: i32[])'
    return f"""{header} {{
        %j = tile_index(%k) {{block="u"}} : i32[u]
        {inside}
    }}"""


def test_load_after_store_elsewhere_in_the_tensor_waits() -> None:
    body = """
        %v = load(%x, none, [%i]) : f32[t]
        store(%y, %v, none, [%i])
        %w0 = load(%y, none, [%a]) : f32[]
        store(%x, %w0, none, [%a])
    """
    assert "".join(shape_of(body)) == "LSBLS"


def test_accesses_at_computed_addresses_may_meet_any_other() -> None:
    body = """
        %p = full() {value=64} : u64[]
        %v = load(%x, none, [%i]) : f32[t]
        store(%y, %v, none, [%i])
        %u = load(%x, none, [%i], bases=%p) : f32[t]
        store(%x, %u, none, [%i], bases=%p)
        %w0 = load(%y, none, [%i]) : f32[t]
        store(%y, %w0, none, [%i])
    """
    assert "".join(shape_of(body)) == "LSBLBSBLS"


def test_in_place_update_needs_no_barrier() -> None:
    body = """
        %v = load(%x, none, [%i]) : f32[t]
        %e = elementwise(%v) {fn="exp"} : f32[t]
        store(%x, %e, none, [%i])
    """
    assert "".join(shape_of(body)) == "LS"


def test_store_over_elements_others_still_read_waits() -> None:
    body = """
        %ten = full() {value=10} : i32[t]
        %i2 = elementwise(%i, %ten) {fn="add"} : i32[t]
        %v = load(%x, none, [%i2]) : f32[t]
        store(%x, %v, none, [%i])
    """
    assert "".join(shape_of(body)) == "LBS"


def test_other_alias_groups_never_conflict() -> None:
    body = """
        %v = load(%x, none, [%i]) : f32[t]
        store(%y, %v, none, [%a0])
        %w0 = load(%x, none, [%a]) : f32[]
        store(%y, %w0, none, [%zero])
    """.replace("%v, none, [%a0]", "%f, none, [%a]")
    # Two stores to y at unknown places are ordered; the load of x in between is not concerned.
    assert "".join(shape_of(body)) == "LSLBS"


def test_one_barrier_covers_all_earlier_stores() -> None:
    body = """
        store(%x, %f, none, [%a])
        store(%y, %f, none, [%a])
        %p = load(%x, none, [%i]) : f32[t]
        %q = load(%y, none, [%i]) : f32[t]
        %s = elementwise(%p, %q) {fn="add"} : f32[t]
        %wide = expand_dims(%s) {axes=[1]} : f32[t, 1]
        %rows = expand_dims(%i) {axes=[1]} : i32[t, 1]
        store(%w, %wide, none, [%rows, %zero])
    """
    assert "".join(shape_of(body)) == "SSBLLS"


def test_parts_of_a_row_are_apart() -> None:
    body = """
        %left = arange() : i32[20]
        %thirty = full() {value=20} : i32[30]
        %right0 = arange() : i32[30]
        %right = elementwise(%right0, %thirty) {fn="add"} : i32[30]
        %p = full() {value=1.0} : f32[20]
        %q = full() {value=2.0} : f32[30]
        store(%w, %p, none, [%b, %left])
        store(%w, %q, none, [%b, %right])
    """
    assert "".join(shape_of(body)) == "SS"
    overlapping = body.replace("{value=20}", "{value=19}")
    assert "".join(shape_of(overlapping)) == "SBS"


def test_even_and_odd_elements_are_apart() -> None:
    body = """
        %two = full() {value=2} : i32[t]
        %one = full() {value=1} : i32[t]
        %even = elementwise(%i, %two) {fn="mul"} : i32[t]
        %odd = elementwise(%even, %one) {fn="add"} : i32[t]
        %v = full() {value=1.0} : f32[t]
        store(%x, %v, none, [%even])
        %w0 = load(%x, none, [%odd]) : f32[t]
        store(%y, %w0, none, [%i])
    """
    assert "".join(shape_of(body)) == "SLS"


def test_scalars_a_constant_apart_do_not_meet() -> None:
    body = """
        %one = full() {value=1} : i32[]
        %next = elementwise(%b, %one) {fn="add"} : i32[]
        store(%x, %f, none, [%b])
        %v = load(%x, none, [%next]) : f32[]
        store(%y, %v, none, [%b])
    """
    assert "".join(shape_of(body)) == "SLS"


def test_load_in_a_loop_waits_before_the_loop() -> None:
    body = "store(%x, %f, none, [%a])" + loop("""
        %v = load(%x, none, [%j]) : f32[u]
        store(%y, %v, none, [%j])
    """)
    assert "".join(shape_of(body)) == "SB(LS)"
    assert ordered_loops(body) == [False]


def test_in_place_update_of_the_loops_own_tile_is_free() -> None:
    body = loop("""
        %rows = expand_dims(%i) {axes=[1]} : i32[t, 1]
        %columns = expand_dims(%j) {axes=[0]} : i32[1, u]
        %v = load(%w, none, [%rows, %columns]) : f32[t, u]
        %e = elementwise(%v) {fn="exp"} : f32[t, u]
        store(%w, %e, none, [%rows, %columns])
    """)
    assert "".join(shape_of(body)) == "(LS)"
    assert ordered_loops(body) == [False]


def test_loop_that_reads_what_it_stored_is_ordered() -> None:
    body = loop("""
        %v = load(%x, none, [%i]) : f32[t]
        %e = elementwise(%v) {fn="exp"} : f32[t]
        store(%x, %e, none, [%i])
    """)
    assert "".join(shape_of(body)) == "(BLS)"
    assert ordered_loops(body) == [True]


def test_neighbours_of_the_own_tile_meet_other_iterations() -> None:
    body = loop("""
        %one = full() {value=1} : i32[u]
        %next = elementwise(%j, %one) {fn="add"} : i32[u]
        %v = load(%x, none, [%next]) : f32[u]
        store(%x, %v, none, [%j])
    """)
    assert "".join(shape_of(body)) == "(BLBS)"
    assert ordered_loops(body) == [True]


def test_store_then_load_in_one_iteration_is_ordered() -> None:
    body = loop("""
        %v = load(%y, none, [%j]) : f32[u]
        store(%x, %v, none, [%j])
        %w0 = load(%x, none, [%k]) : f32[]
        store(%y, %w0, none, [%k])
    """)
    # y: the scalar store meets the tile's load; x: the load meets the store.
    assert ordered_loops(body) == [True]
    assert "".join(shape_of(body)).count("B") >= 1


def test_indexed_loop_steps_over_what_it_accesses() -> None:
    body = """
        %one = full() {value=1} : i32[]
        loop([%zero], [%hundred], [%one], []) {blocks=[""]} (%k: i32[]) {
          %columns = arange() : i32[60]
          %v = load(%w, none, [%k, %columns]) : f32[60]
          %e = elementwise(%v) {fn="exp"} : f32[60]
          store(%w, %e, none, [%k, %columns])
        }
    """
    assert "".join(shape_of(body)) == "(LS)"
    assert ordered_loops(body) == [False]


@pytest.mark.parametrize(("step", "is_ordered"), [(20, False), (19, True)])
def test_stepped_windows_meet_when_wider_than_the_step(step: int, is_ordered: bool) -> None:
    body = f"""
        %step = full() {{value={step}}} : i32[]
        loop([%zero], [%hundred], [%step], []) {{blocks=[""]}} (%k: i32[]) {{
          %window = arange() : i32[20]
          %k1 = expand_dims(%k) {{axes=[0]}} : i32[1]
          %start = broadcast(%k1) : i32[20]
          %at = elementwise(%window, %start) {{fn="add"}} : i32[20]
          %v = load(%x, none, [%at]) : f32[20]
          %e = elementwise(%v) {{fn="exp"}} : f32[20]
          store(%x, %e, none, [%at])
        }}
    """
    assert ordered_loops(body) == [is_ordered]


@pytest.mark.parametrize(
    ("block", "size", "is_apart"),
    [
        ("u", 'block_size() {block="u"}', True),
        ("fixed", "full() {value=8}", True),
        ("fixed", "full() {value=4}", True),
        ("fixed", "full() {value=9}", False),
        ("u", 'block_size() {block="t"}', False),
        ("u", "full() {value=8}", False),
    ],
)
def test_numbers_of_tiles_differ_between_iterations(block: str, size: str, is_apart: bool) -> None:
    body = f"""
        %size = {size} : i32[]
        %v = load(%x, none, [%i]) : f32[t]
        loop([%zero], [%hundred], [], []) {{blocks=["{block}"]}} (%k: i32[]) {{
            %number = elementwise(%k, %size) {{fn="floordiv"}} : i32[]
            %row = expand_dims(%number) {{axes=[0]}} : i32[1]
            store(%w, %v, none, [%row, %i])
        }}
    """
    assert "".join(shape_of(body)) == ("L(S)" if is_apart else "L(BS)")


def test_tiles_as_wide_as_several_numbers_meet() -> None:
    body = loop(
        """
        %size = block_size() {block="u"} : i32[]
        %number = elementwise(%k, %size) {fn="floordiv"} : i32[]
        %one = expand_dims(%number) {axes=[0]} : i32[1]
        %first = broadcast(%one) : i32[4]
        %place = arange() : i32[4]
        %more = elementwise(%first, %place) {fn="add"} : i32[4]
        %v = load(%x, none, [%more]) : f32[4]
        store(%y, %v, none, [%more])
        """
    )
    assert "B" in shape_of(body)


def test_two_axes_must_both_move_the_access() -> None:
    def body(index: str) -> str:
        return f"""
        loop([%zero, %zero], [%hundred, %hundred], [], []) {{blocks=["u", "fixed"]}} \
(%k: i32[], %l: i32[]) {{
          %j = tile_index(%k) {{block="u"}} : i32[u]
          %m = tile_index(%l) {{block="fixed"}} : i32[fixed]
          %rows = expand_dims(%j) {{axes=[1]}} : i32[u, 1]
          %columns = expand_dims(%m) {{axes=[0]}} : i32[1, fixed]
          %v = load(%w, none, [%rows, {index}]) : f32[u, fixed]
          %e = elementwise(%v) {{fn="exp"}} : f32[u, fixed]
          store(%w, %e, none, [%rows, {index}])
        }}
        """

    assert ordered_loops(body("%columns")) == [False]
    arange = "%z = arange() : i32[fixed]\n%columns2 = expand_dims(%z) {axes=[0]} : i32[1, fixed]\n"
    assert ordered_loops(body("%columns2").replace("%v = load", arange + "%v = load")) == [True]


def test_accumulating_atomics_need_no_order_among_themselves() -> None:
    body = loop("""
        %v = load(%x, none, [%j]) : f32[u]
        %old = atomic(%y, %v, none, [%j]) {kind="add"} : f32[u]
        %old2 = atomic(%y, %f, none, [%a]) {kind="add"} : f32[]
    """)
    assert "".join(shape_of(body)) == "(LAA)"


def test_load_after_an_atomic_waits() -> None:
    body = """
        %v = load(%x, none, [%i]) : f32[t]
        %old = atomic(%y, %v, none, [%i]) {kind="add"} : f32[t]
        %w0 = load(%y, none, [%i]) : f32[t]
        store(%x, %w0, none, [%i])
    """
    assert "".join(shape_of(body)) == "LABLS"


def test_store_in_one_branch_is_pending_after_it() -> None:
    body = """
        if(%c) () {
          store(%x, %f, none, [%a])
        } () {
        }
        %v = load(%x, none, [%i]) : f32[t]
        store(%y, %v, none, [%i])
    """
    assert "".join(shape_of(body)) == "(S)BLS" or "".join(shape_of(body)).endswith("BLS")


def test_barrier_in_one_branch_does_not_cover_the_other_path() -> None:
    body = """
        store(%x, %f, none, [%a])
        if(%c) () {
          %p = load(%x, none, [%zero]) : f32[]
          store(%y, %p, none, [%zero])
        } () {
        }
        %v = load(%x, none, [%i]) : f32[t]
        store(%y, %v, none, [%i])
    """
    letters = "".join(shape_of(body))
    assert letters.startswith("S(BLS")
    assert letters.endswith("BLBS") or letters.endswith("BLS")


def test_while_loop_that_stores_what_its_condition_reads() -> None:
    body = """
        while() () {
          %v = load(%x, none, [%a]) : f32[]
          %go = elementwise(%v, %f) {fn="lt"} : bool[]
          yield(%go)
        } () {
          store(%x, %f, none, [%zero])
        }
    """
    letters = "".join(shape_of(body))
    assert letters.startswith("(BL")
    assert letters.count("B") == 2


def test_store_in_a_loop_is_seen_after_it() -> None:
    body = (
        loop("store(%x, %f, none, [%k])")
        + """
        %v = load(%x, none, [%i]) : f32[t]
        store(%y, %v, none, [%i])
    """
    )
    assert "".join(shape_of(body)) == "(S)BLS"


def counted(order: str) -> str:
    """A store, an atomic on another tensor, and a load of a third."""
    return f"""
        %v = load(%x, none, [%i]) : f32[t]
        store(%y, %v, none, [%i])
        %before = atomic(%w, %f, none, [%a, %a]) {{kind="add", order="{order}"}} : f32[]
        %w0 = load(%x, none, [%i]) : f32[t]
        store(%y, %w0, none, [%i])
    """


@pytest.mark.parametrize(
    ("order", "expected"),
    [("relaxed", "LSALS"), ("release", "LSBALS"), ("acquire", "LSABLS"), ("acq_rel", "LSBABLS")],
)
def test_one_thread_releases_and_acquires_for_all(order: str, expected: str) -> None:
    # A single thread touches the counter: what the others stored must be done before it says so,
    # and what they load must wait until it knows.
    assert "".join(shape_of(counted(order))) == expected


def test_a_loop_that_acquires_is_not_pipelined() -> None:
    inside = """
        %before = atomic(%w, %f, none, [%a, %a]) {kind="add", order="acquire"} : f32[]
        %v = load(%x, none, [%j]) : f32[u]
        store(%y, %v, none, [%j])
    """
    assert ordered_loops(loop(inside)) == [True]
    assert ordered_loops(loop(inside.replace("acquire", "relaxed"))) == [False]


def test_elements_of_one_residue_may_meet() -> None:
    body = """
        %two = full() {value=2} : i32[t]
        %even = elementwise(%i, %two) {fn="mul"} : i32[t]
        %next = elementwise(%even, %two) {fn="add"} : i32[t]
        %v = full() {value=1.0} : f32[t]
        store(%x, %v, none, [%even])
        %w0 = load(%x, none, [%next]) : f32[t]
        store(%y, %w0, none, [%i])
    """
    assert "".join(shape_of(body)) == "SBLS"
