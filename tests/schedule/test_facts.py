"""Facts are derived from the IR and speak in the user's names."""

from __future__ import annotations

from tests.ir_parser import parse_function
from tests.schedule import programs
from tilesmith.analysis.restructuring import find_rollable_dims
from tilesmith.dtypes import BF16, F32
from tilesmith.ir.types import Dim
from tilesmith.schedule.facts.collect import collect_facts
from tilesmith.schedule.facts.outline import FunctionOutline


def facts_of(function, rollable=()):
    return collect_facts(FunctionOutline(function), rollable)


def test_matmul_names_its_axes():
    (fact,) = facts_of(programs.matmul(100, 200, 300)).matmuls
    assert [(axis.block, axis.extent) for axis in fact.axes] == [
        ("tile_m", 100),
        ("tile_n", 200),
        ("tile_k", 300),
    ]
    assert (fact.lhs_dtype, fact.rhs_dtype, fact.acc_dtype) == (BF16, BF16, F32)
    assert fact.is_looped
    assert fact.batch is None


def test_exact_fp32_products_use_no_tensor_cores():
    (exact,) = facts_of(programs.matmul(dtype="f32", precision="ieee")).matmuls
    (rounded,) = facts_of(programs.matmul(dtype="f32", precision="tf32")).matmuls
    assert not exact.uses_tensor_cores
    assert rounded.uses_tensor_cores


def test_constant_sides_have_no_block():
    scores, values = facts_of(programs.attention(width=96)).matmuls
    assert (scores.k.block, scores.k.extent, scores.k.dim) == (None, 96, Dim((96,)))
    assert (values.k.block, values.n.extent) == ("tile_n", 96)


def test_attention_is_two_chained_products():
    fact = facts_of(programs.attention()).attention
    assert fact is not None
    assert fact.scores.n == fact.values.k
    assert facts_of(programs.matmul()).attention is None


def test_inner_loop_over_an_outer_tile_has_its_length():
    (fact,) = facts_of(programs.split_k(k=32768, k_block=512)).matmuls
    assert (fact.k.block, fact.k.extent) == ("inner_k", 512)
    structure = FunctionOutline(programs.split_k(k_block=256))
    assert structure.outer_bounds == {"inner_k": 256}
    assert FunctionOutline(programs.nested_tiles()).outer_bounds == {"inner": "outer"}


def test_row_reduction_is_reread_when_the_row_is_stored_again():
    (fact,) = facts_of(programs.softmax(64, 200), (Dim((200,)),)).reductions
    assert (fact.kind, fact.axis.extent, fact.functions) == ("rollable", 200, ("max", "sum"))
    assert fact.is_reread
    (alone,) = facts_of(programs.softmax(64, 200)).reductions
    assert alone.kind == "persistent"


def test_reduction_over_a_tile():
    (fact,) = facts_of(programs.row_sum_by_tiles(7, 1000)).reductions
    assert (fact.kind, fact.axis.block, fact.axis.extent) == ("tile", "tile_n", 1000)
    assert not fact.is_reread


def test_a_scan_holds_its_row_like_a_reduction_that_cannot_be_rolled():
    function = parse_function("""func @running_sum {
  param %x: tensor<f32[64, 200], strides=[200, 1], alias=0> from "x"
  param %out: tensor<f32[64, 200], strides=[200, 1], alias=1> from "out"
  block tile_m {slot=0}
  %zero = full() {value=0} : i32[]
  %m = full() {value=64} : i32[]
  grid([%zero], [%m]) {blocks=["tile_m"], slot=0} (%b: i32[]) {
    %r = tile_index(%b) {block="tile_m"} : i32[tile_m]
    %i = expand_dims(%r) {axes=[1]} : i32[tile_m, 1]
    %j = arange() : i32[200]
    %v = load(%x, none, [%i, %j]) {slot=0} : f32[tile_m, 200]
    %s = scan(%v) {axis=1, kind="sum"} : f32[tile_m, 200]
    store(%out, %s, none, [%i, %j]) {slot=1}
  }
}
""")
    facts = facts_of(function, find_rollable_dims(function))
    (fact,) = facts.reductions
    assert (fact.axis.extent, fact.kind, fact.functions) == (200, "persistent", ("sum",))
    assert facts.pointwise is None


def test_matmul_and_reduction_compose_only_over_the_output_row():
    composed = facts_of(programs.matmul_row_norm(n=512)).epilogue
    assert composed is not None
    assert composed.matmul.n.dim == composed.reduction.axis.dim == Dim((512,))
    for other in (programs.matmul(), programs.softmax(), programs.attention()):
        assert facts_of(other).epilogue is None


def test_pointwise_counts_bytes_and_knows_what_runs_along_memory():
    fact = facts_of(programs.pointwise(100, 300, "bf16")).pointwise
    assert fact is not None
    assert (fact.total, fact.slab, fact.storage_bytes) == (30000, 1, 6)
    assert fact.contiguous_blocks == ("tile_n",)
    assert fact.num_transcendentals == 1
    turned = facts_of(programs.pointwise(transposed=True)).pointwise
    assert turned is not None
    assert turned.contiguous_blocks == ("tile_m", "tile_n")


def test_kernels_with_products_reductions_or_atomics_are_not_pointwise():
    for other in (programs.matmul(), programs.softmax(), programs.split_k()):
        assert facts_of(other).pointwise is None


def test_access_facts_follow_slots():
    facts = facts_of(programs.matmul(128, 256, 512)).accesses
    assert [(fact.slot, fact.kind, fact.tensor) for fact in facts] == [
        (0, "load", "x"),
        (1, "load", "y"),
        (2, "store", "out"),
    ]
    assert [fact.contiguous_block for fact in facts] == ["tile_k", "tile_n", "tile_n"]
    assert [fact.reuse for fact in facts] == [256, 128, 1]
    assert all(fact.is_rectangle for fact in facts)


def test_gather_is_no_rectangle():
    index, table, out, extra = facts_of(programs.gather()).accesses
    assert not table.is_rectangle
    assert index.is_rectangle
    assert out.is_rectangle
    assert table.contiguous_dim == Dim((64,))
    assert table.contiguous_block is None
    assert extra.contiguous_block == "tile_e"


def test_plain_index_axes_count_as_indexed():
    facts = facts_of(programs.batched_matmul(8, 64, 128, 32)).accesses
    assert [fact.reuse for fact in facts] == [128, 64, 1]


def test_atomics_are_numbered_by_themselves():
    facts = facts_of(programs.split_k()).accesses
    assert [(fact.kind, fact.slot) for fact in facts] == [("load", 0), ("load", 1), ("atomic", 0)]
