"""A product whose rows are then reduced is one composed fact; what only looks like it is not."""

from __future__ import annotations

import pytest
import torch

from examples.attention import attention, causal_attention
from examples.layer_norm import layer_norm_fwd
from examples.matmul import matmul
from examples.matmul_layernorm import matmul_layernorm
from examples.softmax import softmax
from tests.schedule import fact_kernels
from tests.schedule.fact_kernels import operands
from tests.specs import config_spec
from tilesmith.targets import parse_target

N = 192
VECTOR = torch.empty(N, dtype=torch.float16)
QUERIES = torch.empty(2, 64, 32, dtype=torch.float16)


def layernorm_operands(m, n, k):
    return (*operands(m, n, k), VECTOR, VECTOR)


@pytest.fixture(params=["cuda:90", "cpu"])
def facts_of(request):
    target = parse_target(request.param)

    def collect(kernel, *args):
        return config_spec(kernel.bind(args).function, target).facts

    return collect


@pytest.mark.parametrize(
    ("kernel", "functions"),
    [
        (fact_kernels.matmul_var, ("sum",)),
        (fact_kernels.matmul_rms_norm, ("sum",)),
        (fact_kernels.matmul_softmax, ("max", "sum")),
        (fact_kernels.matmul_l2_normalize, ("sum",)),
        (fact_kernels.matmul_logsumexp, ("max", "sum")),
    ],
)
def test_products_with_a_reduction_of_their_rows_are_composed(facts_of, kernel, functions):
    facts = facts_of(kernel, *operands(100, N, 64))
    fact = facts.epilogue
    assert fact is not None
    assert fact.matmul is facts.matmuls[0]
    assert fact.reduction is facts.reductions[0]
    assert fact.reduction.functions == functions
    assert fact.reduction.axis.extent == fact.matmul.n.extent == N


def test_a_new_kernel_has_the_same_composed_fact_as_layernorm(facts_of):
    new = facts_of(fact_kernels.matmul_var, *operands(100, N, 64)).epilogue
    known = facts_of(matmul_layernorm, *layernorm_operands(100, N, 64)).epilogue
    assert new is not None
    assert known is not None
    assert new.matmul.axes == known.matmul.axes
    assert new.matmul.text == known.matmul.text
    assert (new.reduction.axis, new.reduction.kind) == (
        known.reduction.axis,
        known.reduction.kind,
    )


def test_mean_and_variance_over_one_axis_are_one_reduction(facts_of):
    (fact,) = facts_of(matmul_layernorm, *layernorm_operands(100, N, 64)).reductions
    assert fact.is_reread


@pytest.mark.parametrize(
    "kernel",
    [
        fact_kernels.tiled_matmul_sum,
        fact_kernels.normalized_matmul,
        fact_kernels.matmul_with_other_sum,
        fact_kernels.matmul_column_sum,
        fact_kernels.sums_of_partial_products,
        matmul,
    ],
)
def test_other_products_are_not_composed(facts_of, kernel):
    assert facts_of(kernel, *operands(100, N, 64)).epilogue is None


def test_equal_sizes_do_not_make_another_axis_the_output(facts_of):
    # K and N are both 192: the reduction over K must not be taken for one over N.
    facts = facts_of(fact_kernels.normalized_matmul, *operands(100, N, N))
    assert facts.matmuls[0].n.dim == facts.reductions[0].axis.dim
    assert facts.epilogue is None


def test_attention_and_pure_reductions_are_not_composed(facts_of):
    for kernel in (attention, causal_attention):
        facts = facts_of(kernel, QUERIES, QUERIES, QUERIES)
        assert facts.epilogue is None
        assert facts.attention is not None
    rows = torch.empty(64, N)
    assert facts_of(softmax, rows).epilogue is None
    weight = torch.empty(N)
    assert facts_of(layer_norm_fwd, rows, weight, weight).epilogue is None
