"""Rows walked in chunks give what rows held whole give."""

from __future__ import annotations

import pytest
import torch

from tests.lowering import run_standard
from tests.passes.kernel_texts import (
    binary,
    layer_norm_body,
    parse_kernel,
    results_of,
    row_kernel,
    softmax_body,
    spread,
)
from tests.passes.program_text import find_grid
from tilesmith.analysis.restructuring import find_rollable_dims
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import Dim
from tilesmith.ir.verifier import verify_function
from tilesmith.passes.accesses import order_memory
from tilesmith.passes.roll_reductions import roll_reductions

COLUMNS = Dim.of(200)


def roll(function: Function, dim: Dim = COLUMNS) -> Function:
    assert find_rollable_dims(function) == (dim,)
    rolled = order_memory(roll_reductions(function, {dim: "chunk"}))
    verify_function(rolled)
    shapes = [v.type for op in walk_function(rolled) for v in op.results]
    assert not any(dim in getattr(t, "shape", ()) for t in shapes), "the dimension is still there"
    return rolled


def make_rows(rows: int = 5, columns: int = 200) -> dict[str, torch.Tensor | int]:
    x = torch.randn((rows, columns), generator=torch.Generator().manual_seed(1))
    return {"x": x, "out": torch.zeros_like(x), "rowwise": torch.zeros(rows), "rows": rows}


def check(
    function: Function, arguments: dict[str, torch.Tensor | int], chunk: int, exact: bool = False
) -> None:
    """Both before and after the standard passes, chunks must give what whole rows give."""
    standard = run_standard(function)
    function = order_memory(function)
    expected = results_of(function, arguments, {"m": 4})
    for before in (function, standard):
        found = results_of(roll(before), arguments, {"m": 4, "chunk": chunk})
        for name, value in expected.items():
            if exact:
                torch.testing.assert_close(found[name], value, rtol=0, atol=0, equal_nan=True)
            else:
                # Sums of 200 fp32 terms in another order.
                torch.testing.assert_close(found[name], value, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("chunk", [1, 32, 64, 200, 256])
@pytest.mark.parametrize("body", [softmax_body(), softmax_body("x"), layer_norm_body()])
def test_rows_with_several_passes(body: str, chunk: int) -> None:
    check(row_kernel(body), make_rows(), chunk)


def test_softmax_takes_three_loops_that_each_read_the_row() -> None:
    rolled = roll(run_standard(row_kernel(softmax_body())))
    loops = [op for op in find_grid(rolled).body.ops if isinstance(op, Loop)]
    assert len(loops) == 3
    loads = [op for op in walk_function(rolled) if isinstance(op, Load)]
    assert [load.slot for load in loads] == [0, 0, 0]
    assert rolled.block("chunk").extent == 200


@pytest.mark.parametrize(
    ("kind", "prepare"),
    [
        ("sum", ""),
        ("prod", ""),
        ("max", ""),
        ("min", ""),
        ("sum", '%w0 = elementwise(%v) {fn="exp"} : f32[m, 200]'),
    ],
)
@pytest.mark.parametrize("chunk", [16, 128, 256])
def test_every_kind_of_reduction(kind: str, prepare: str, chunk: int) -> None:
    operand = "%w0" if prepare else "%v"
    function = row_kernel(f"""
        {prepare}
        %r0 = reduce({operand}) {{axis=1, kind="{kind}"}} : f32[m]
        store(%rowwise, %r0, none, [%r])
    """)
    check(function, make_rows(), chunk, exact=kind in ("max", "min"))


@pytest.mark.parametrize("kind", ["any", "all"])
def test_logical_reductions(kind: str) -> None:
    function = row_kernel(f"""
        %z = full() {{value=2.5}} : f32[m, 200]
        %p = elementwise(%v, %z) {{fn="{"gt" if kind == "any" else "lt"}"}} : bool[m, 200]
        %q = reduce(%p) {{axis=1, kind="{kind}"}} : bool[m]
        %r0 = cast(%q) : f32[m]
        store(%rowwise, %r0, none, [%r])
    """)
    arguments = make_rows(rows=40)
    x = arguments["x"]
    assert isinstance(x, torch.Tensor)
    reduced = (x > 2.5).any(1)
    assert reduced.any(), "the example must not be trivial"
    assert not reduced.all()
    check(function, arguments, 64, exact=True)


ARG = """
    %p = reduce(%v) {axis=1, kind="KIND"} : i64[m]
    %r0 = cast(%p) : f32[m]
    store(%rowwise, %r0, none, [%r])
"""


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("chunk", [16, 64, 256])
@pytest.mark.parametrize("case", ["random", "ties", "infinite", "nan", "all_worst"])
def test_positions_are_the_first_of_the_best(kind: str, chunk: int, case: str) -> None:
    arguments = make_rows()
    x = arguments["x"]
    assert isinstance(x, torch.Tensor)
    if case == "ties":
        x.copy_(x.round())
    elif case == "infinite":
        x[:, 70:90] = float("inf")
        x[:, 20:30] = float("-inf")
    elif case == "nan":
        x[0, 150], x[0, 100], x[2, 199] = float("nan"), float("nan"), float("nan")
    elif case == "all_worst":
        x.fill_(float("-inf") if kind == "argmax" else float("inf"))
    expected = getattr(torch, kind)(x, 1)
    function = row_kernel(ARG.replace("KIND", kind))
    check(function, arguments, chunk, exact=True)
    found = results_of(roll(function), arguments, {"m": 4, "chunk": chunk})
    assert torch.equal(found["rowwise"].long(), expected)


def test_half_sums_are_kept_in_fp32() -> None:
    function = parse_kernel("""func @half {
  param %x: tensor<bf16[6, 1000], strides=[1000, 1], alias=0> from "x"
  param %out: tensor<bf16[6], strides=[1], alias=1> from "out"
  block m {slot=0}
  %zero = full() {value=0} : i32[]
  %six = full() {value=6} : i32[]
  grid([%zero], [%six]) {blocks=["m"]} (%b: i32[]) {
    %r = tile_index(%b) {block="m"} : i32[m]
    %r1 = expand_dims(%r) {axes=[1]} : i32[m, 1]
    %n = arange() : i64[1000]
    %n1 = expand_dims(%n) {axes=[0]} : i64[1, 1000]
    %v = load(%x, none, [%r1, %n1]) : bf16[m, 1000]
    %s = reduce(%v) {axis=1, kind="sum"} : bf16[m]
    store(%out, %s, none, [%r])
  }
}
""")
    x = torch.rand((6, 1000), generator=torch.Generator().manual_seed(0)).bfloat16()
    arguments = {"x": x, "out": torch.zeros(6, dtype=torch.bfloat16)}
    rolled = roll(function, Dim.of(1000))
    found = results_of(rolled, arguments, {"m": 4, "chunk": 64})["out"]
    # Half an ulp of bf16 from the exact sum, and a little for the fp32 sums.
    exact = x.double().sum(1)
    assert ((found.double() - exact).abs() / exact).max() <= 2**-8


CROSS_ENTROPY = f"""
    %label = load(%labels, none, [%r]) : i32[m]
    %picked = load(%x, none, [%r, %label]) : f32[m]
    %top = reduce(%v) {{axis=1, kind="max"}} : f32[m]
    {spread("top")}
    {binary("d", "sub", "v", "top_b")}
    %e = elementwise(%d) {{fn="exp"}} : f32[m, 200]
    %s = reduce(%e) {{axis=1, kind="sum"}} : f32[m]
    %l = elementwise(%s) {{fn="log"}} : f32[m]
    %lse = elementwise(%l, %top) {{fn="add"}} : f32[m]
    %loss = elementwise(%lse, %picked) {{fn="sub"}} : f32[m]
    store(%rowwise, %loss, none, [%r])
"""
LABELS = 'param %labels: tensor<i32[rows], strides=[1], alias=5> from "labels"'


@pytest.mark.parametrize("chunk", [32, 128])
def test_cross_entropy_with_a_gathered_logit(chunk: int) -> None:
    arguments = make_rows(7)
    arguments["labels"] = torch.tensor([0, 199, 31, 32, 33, 100, 7], dtype=torch.int32)
    function = row_kernel(CROSS_ENTROPY, parameters=LABELS)
    check(function, arguments, chunk)
    x = arguments["x"]
    assert isinstance(x, torch.Tensor)
    expected = torch.nn.functional.cross_entropy(
        x.double(), arguments["labels"].long(), reduction="none"
    )
    found = results_of(roll(function), arguments, {"m": 4, "chunk": chunk})["rowwise"]
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunk", [16, 64, 128])
def test_runtime_sizes_roll_too(chunk: int) -> None:
    function = parse_kernel("""func @dynamic {
  param %x: tensor<f32[rows, n], strides=[n, 1], alias=0> from "x"
  param %out: tensor<f32[rows, n], strides=[n, 1], alias=1> from "out"
  param %rows: i32[] from "x.size(0)"
  param %n: i64[] from "x.size(1)"
  block m {slot=0}
  size n {hint=90}
  %zero = full() {value=0} : i32[]
  grid([%zero], [%rows]) {blocks=["m"]} (%b: i32[]) {
    %r = tile_index(%b) {block="m"} : i32[m]
    %r1 = expand_dims(%r) {axes=[1]} : i32[m, 1]
    %columns = arange() : i32[n]
    %n1 = expand_dims(%columns) {axes=[0]} : i32[1, n]
    %v = load(%x, none, [%r1, %n1]) : f32[m, n]
    %s = reduce(%v) {axis=1, kind="sum"} : f32[m]
    %s1 = expand_dims(%s) {axes=[1]} : f32[m, 1]
    %sb = broadcast(%s1) : f32[m, n]
    %q = elementwise(%v, %sb) {fn="div"} : f32[m, n]
    store(%out, %q, none, [%r1, %n1])
  }
}
""")
    x = torch.rand((5, 77), generator=torch.Generator().manual_seed(0)) + 1
    arguments = {"x": x, "out": torch.zeros_like(x), "rows": 5, "n": 77}
    rolled = roll(function, Dim.of("n"))
    found = results_of(rolled, arguments, {"m": 2, "n": 77, "chunk": chunk})["out"]
    torch.testing.assert_close(found, x / x.sum(1, keepdim=True), rtol=2e-6, atol=0)


def test_rows_in_a_nested_loop_with_hoisted_indices() -> None:
    function = parse_kernel("""func @nested {
  param %x: tensor<f32[12, 200], strides=[200, 1], alias=0> from "x"
  param %out: tensor<f32[12], strides=[1], alias=1> from "out"
  block m {slot=0}
  block u {slot=1}
  %zero = full() {value=0} : i32[]
  %six = full() {value=6} : i32[]
  %twelve = full() {value=12} : i32[]
  grid([%zero], [%twelve]) {blocks=["m"]} (%b: i32[]) {
    %n = arange() : i32[200]
    %n1 = expand_dims(%n) {axes=[0]} : i32[1, 200]
    %end = elementwise(%b, %six) {fn="add"} : i32[]
    loop([%b], [%end], [], []) {blocks=["u"]} (%k: i32[]) {
      %r = tile_index(%k) {block="u"} : i32[u]
      %r1 = expand_dims(%r) {axes=[1]} : i32[u, 1]
      %v = load(%x, none, [%r1, %n1]) : f32[u, 200]
      %s = reduce(%v) {axis=1, kind="max"} : f32[u]
      store(%out, %s, none, [%r])
    }
  }
}
""")
    x = torch.randn((12, 200), generator=torch.Generator().manual_seed(0))
    rolled = roll(function)
    found = results_of(rolled, {"x": x, "out": torch.zeros(12)}, {"m": 6, "u": 2, "chunk": 64})
    assert torch.equal(found["out"], x.amax(1))


@pytest.mark.parametrize(
    "body",
    [
        # A load of what an earlier phase has changed.
        """
        %s = reduce(%v) {axis=1, kind="sum"} : f32[m]
        %two = full() {value=2.0} : f32[m, 200]
        %w0 = elementwise(%v, %two) {fn="mul"} : f32[m, 200]
        store(%x, %w0, none, [%r1, %n1])
        """
        + spread("s")
        + binary("q", "mul", "v", "s_b")
        + "store(%out, %q, none, [%r1, %n1])",
        # A reshape of the row.
        """
        %q = reshape(%v) : f32[m*200]
        %p = reshape(%q) : f32[m, 200]
        %s = reduce(%p) {axis=1, kind="sum"} : f32[m]
        store(%rowwise, %s, none, [%r])
        """,
        # A carried row.
        """
        %w0 = loop([%zero], [%rows], [], [%v]) {blocks=["m"]} : f32[m, 200] \
(%k: i32[], %a: f32[m, 200]) {
          yield(%a)
        }
        %s = reduce(%w0) {axis=1, kind="sum"} : f32[m]
        store(%rowwise, %s, none, [%r])
        """,
        # A running sum of the row.
        """
        %c = scan(%v) {axis=1, kind="sum"} : f32[m, 200]
        %s = reduce(%c) {axis=1, kind="max"} : f32[m]
        store(%rowwise, %s, none, [%r])
        """,
        # A dot over the row.
        """
        %t = permute(%v) {order=[1, 0]} : f32[200, m]
        %d = dot(%v, %t, none) : f32[m, m]
        %s = reduce(%v) {axis=1, kind="sum"} : f32[m]
        store(%rowwise, %s, none, [%r])
        """,
        # No reduction at all.
        "store(%out, %v, none, [%r1, %n1])",
        # A loaded row used inside another region.
        """
        loop([%zero], [%rows], [], []) {blocks=["m"]} (%k: i32[]) {
          %s = reduce(%v) {axis=1, kind="sum"} : f32[m]
          store(%rowwise, %s, none, [%r])
        }
        """,
    ],
)
def test_dims_that_cannot_be_rolled_are_left(body: str) -> None:
    function = row_kernel(body)
    assert find_rollable_dims(function) == ()
    assert roll_reductions(function, {COLUMNS: "chunk"}) is function


def test_scaled_twice_in_place_reads_each_chunk_before_writing_it() -> None:
    body = """
        %s = reduce(%v) {axis=1, kind="max"} : f32[m]
        """ + spread("s") + binary("q", "sub", "v", "s_b") + """
        store(%x, %q, none, [%r1, %n1])
        %again = load(%x, none, [%r1, %n1]) : f32[m, 200]
        store(%out, %again, none, [%r1, %n1])
    """  # fmt: skip
    check(row_kernel(body), make_rows(), 64, exact=True)


def test_stores_to_one_place_keep_their_order() -> None:
    body = """
        %s = reduce(%v) {axis=1, kind="max"} : f32[m]
        """ + spread("s") + """
        store(%out, %s_b, none, [%r1, %n1])
        store(%out, %v, none, [%r1, %n1])
    """  # fmt: skip
    check(row_kernel(body), make_rows(), 64, exact=True)


def test_store_per_row_over_a_stored_row_comes_after_the_whole_row() -> None:
    body = """
        %s = reduce(%v) {axis=1, kind="max"} : f32[m]
        store(%out, %v, none, [%r1, %n1])
        %last = full() {value=199} : i32[]
        store(%out, %s, none, [%r, %last])
    """
    check(row_kernel(body), make_rows(), 64, exact=True)
