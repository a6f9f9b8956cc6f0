"""The standard pipeline keeps results and leaves valid IR after every pass."""

from __future__ import annotations

import pytest
import torch

from tests.lowering import run_standard
from tests.passes.kernel_texts import (
    COMPRESS,
    MATMUL,
    Arguments,
    layer_norm_body,
    parse_kernel,
    results_of,
    row_kernel,
    softmax_body,
)
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load, ProgramBarrier
from tilesmith.ir.traversal import walk_function
from tilesmith.passes.accesses import order_memory


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def row_arguments(rows: int, columns: int = 200) -> Arguments:
    x = random(rows, columns)
    return {"x": x, "out": torch.zeros_like(x), "rowwise": torch.zeros(rows), "rows": rows}


@pytest.mark.parametrize("body", [softmax_body(), softmax_body("x"), layer_norm_body()])
@pytest.mark.parametrize("rows", [1, 7, 8, 9])
def test_row_kernels_give_the_same_results(body: str, rows: int) -> None:
    before = row_kernel(body)
    after = run_standard(before)
    arguments = row_arguments(rows)
    expected = results_of(before, arguments, {"m": 8})
    found = results_of(after, arguments, {"m": 8})
    for name in expected:
        assert torch.equal(expected[name], found[name])


def test_products_gain_the_accuracy_of_addmm() -> None:
    x, y = random(50, 70, dtype=torch.bfloat16), random(33, 70, dtype=torch.bfloat16, seed=1).t()
    arguments = {"x": x, "y": y, "out": torch.zeros(50, 33)}
    sizes = {"m": 16, "n": 32, "k": 16}
    exact = x.double() @ y.double()
    before = parse_kernel(MATMUL)
    after = run_standard(before)
    errors = [
        (results_of(f, arguments, sizes)["out"].double() - exact).abs().max().item()
        for f in (before, after)
    ]
    # One rounding of an fp32 sum of 70 products against roundings of partial sums to bf16.
    assert errors[1] < 70 * 2**-23 * exact.abs().max().item() < errors[0]
    (dot,) = (op for op in walk_function(after) if isinstance(op, Dot))
    assert dot.acc is not None


def test_indices_in_loops_are_those_outside() -> None:
    after = run_standard(parse_kernel(MATMUL))
    text = [op.result.name for op in walk_function(after) if len(op.results) == 1]
    assert "again" not in text
    assert "again1" not in text


def test_stored_product_is_used_without_reading_it_back() -> None:
    before = parse_kernel(COMPRESS)
    after = run_standard(before)
    arguments = {
        "x": random(3, 37, 16, dtype=torch.bfloat16),
        "y": random(3, 37, 8, dtype=torch.bfloat16, seed=1),
        "xty": torch.zeros(3, 16, 8, dtype=torch.bfloat16),
        "out": torch.zeros(3, 37, 8, dtype=torch.bfloat16),
    }
    sizes = {"m": 16, "p": 8}
    # As it is traced there is no order yet between the store and the load of its elements.
    in_order = (order_memory(before), after)
    expected, found = (results_of(f, arguments, sizes) for f in in_order)
    for name in expected:
        assert torch.equal(expected[name], found[name])
    loads = [op.tensor.name for op in walk_function(after) if isinstance(op, Load)]
    assert loads == ["x", "y", "x"]
    assert not any(isinstance(op, ProgramBarrier) for op in walk_function(after))


def test_standard_pipeline_has_nothing_left_to_do_after_itself() -> None:
    for function in (parse_kernel(MATMUL), row_kernel(layer_norm_body())):
        once = run_standard(function)
        twice = run_standard(once)
        assert twice is once
