"""Which rows can be walked in chunks, and in how many phases."""

from __future__ import annotations

import pytest

from tests.passes.kernel_texts import layer_norm_body, row_kernel, softmax_body
from tilesmith.analysis.restructuring import find_rollable_dims, plan_rolling
from tilesmith.ir.types import Dim

COLUMNS = Dim.of(200)
TOTAL = '%s = reduce(%v) {axis=1, kind="sum"} : f32[m]\nstore(%rowwise, %s, none, [%r])\n'


@pytest.mark.parametrize(
    ("body", "anchors"),
    [(TOTAL, [1, 0]), (softmax_body(), [1, 1, 1]), (layer_norm_body(), [1, 1, 1])],
    ids=["sum", "softmax", "layer_norm"],
)
def test_each_reduction_over_the_row_ends_a_phase(body: str, anchors: list[int]):
    plans = plan_rolling(row_kernel(body), COLUMNS)
    assert plans is not None
    (plan,) = plans
    assert [len(plan.anchors(COLUMNS, phase)) for phase in range(plan.num_phases)] == anchors


def test_rows_that_are_not_reduced_are_not_rolled():
    assert find_rollable_dims(row_kernel("store(%out, %v, none, [%r1, %n1])")) == ()


@pytest.mark.parametrize(
    "more",
    [
        '%q = scan(%v) {axis=1, kind="sum"} : f32[m, 200]\nstore(%out, %q, none, [%r1, %n1])',
        '%q = scan(%v) {axis=0, kind="sum"} : f32[m, 200]\nstore(%out, %q, none, [%r1, %n1])',
        "%h = reshape(%v) : f32[m, 2, 100]\n"
        '%q = reduce(%h) {axis=1, kind="sum"} : f32[m, 100]\nprint(%q) {prefix=""}',
        'print(%v) {prefix=""}',
    ],
    ids=["mixed", "mixed along another axis", "moved", "shown"],
)
def test_rows_that_meet_other_ops_are_not_rolled(more: str):
    assert find_rollable_dims(row_kernel(TOTAL)) == (COLUMNS,)
    assert find_rollable_dims(row_kernel(TOTAL + more)) == ()


def test_views_and_functions_of_a_row_are_computed_again_in_each_chunk():
    body = """
    %e = elementwise(%v) {fn="exp"} : f32[m, 200]
    %p = permute(%e) {order=[1, 0]} : f32[200, m]
    %s = reduce(%p) {axis=0, kind="max"} : f32[m]
    store(%rowwise, %s, none, [%r])
    """
    assert find_rollable_dims(row_kernel(body)) == (COLUMNS,)
