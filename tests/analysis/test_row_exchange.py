"""Sums that can be made of parts around anchors of their own, and when parts are exchanged."""

from __future__ import annotations

from typing import Any

import pytest

from tests.passes import row_product_kernels as kernels
from tests.passes.kernel_texts import layer_norm_body, row_kernel, softmax_body
from tests.passes.test_split_rows import function_of, normal
from tilesmith.analysis.row_exchange import DerivedReduction, SumForm, find_derived
from tilesmith.analysis.row_products import find_row_product
from tilesmith.analysis.shared_rows.stages import plan_exchange_stages
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.traversal import definitions, walk_function


def derived_of_last(body: str, length: int = 200) -> DerivedReduction | None:
    function = row_kernel(body)
    *_, last = (op for op in walk_function(function) if isinstance(op, Reduce))
    return find_derived(last, definitions(function.body), length)


@pytest.mark.parametrize(
    ("body", "form", "base"),
    [(layer_norm_body(), SumForm.SQUARES, "sum"), (softmax_body(), SumForm.POWERS, "max")],
    ids=["variance", "softmax"],
)
def test_sums_around_a_mean_or_below_a_maximum(body: str, form: SumForm, base: str):
    found = derived_of_last(body)
    assert found is not None
    assert (found.rule, found.base.kind, found.x.name) == (form, base, "v")


def test_a_mean_of_another_length_is_no_anchor():
    assert derived_of_last(layer_norm_body(), length=199) is None


def test_a_plain_sum_is_derived_from_nothing():
    body = '%s = reduce(%v) {axis=1, kind="sum"} : f32[m]\nstore(%rowwise, %s, none, [%r])'
    assert derived_of_last(body) is None


@pytest.mark.parametrize(
    ("kernel", "exchanges"), [(kernels.matmul_var, 1), (kernels.wide_indices, 1)]
)
def test_reductions_of_a_product_are_exchanged_together_where_they_can(kernel: Any, exchanges: int):
    function = function_of(kernel, (normal(37, 29), normal(29, 45)))
    site = find_row_product(function)
    assert site is not None
    plan = plan_exchange_stages(site)
    assert plan is not None
    assert (len(plan.exchanged), len(plan.stages)) == (exchanges, exchanges + 1)
    assert site.dot.result in site.columns
