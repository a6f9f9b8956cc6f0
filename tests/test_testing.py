"""``run_example`` compares every function with the first baseline, gradients included."""

from __future__ import annotations

import pytest
import torch

from tilesmith._testing import run_example


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * x

    @staticmethod
    def backward(ctx, *grads):
        (x,) = ctx.saved_tensors
        return grads[0] * x * ctx.factor, None


def test_times_of_all_functions_are_printed(capsys):
    functions = {"kernel": torch.add, "sum": lambda a, b: a + b}
    run_example(functions, torch.add, (torch.ones(4), torch.ones(4)), baseline_name="eager")
    first, *rows = capsys.readouterr().out.splitlines()
    assert first.split()[0] == "implementation"
    assert [row.split()[0] for row in rows] == ["kernel", "sum", "eager"]


def test_a_difference_names_the_function():
    with pytest.raises(AssertionError, match="wrong: Tensor-likes are not close"):
        run_example({"wrong": torch.sub}, torch.add, (torch.ones(4), torch.ones(4)))


def test_tolerances_are_those_given():
    args = (torch.ones(4),)
    run_example(lambda x: x + 0.05, torch.clone, args)
    with pytest.raises(AssertionError):
        run_example(lambda x: x + 0.05, torch.clone, args, rtol=1e-3, atol=1e-3)


def test_results_are_compared_one_by_one():
    args = (torch.arange(4.0),)
    run_example(lambda x: (x, 3), lambda x: [x.half(), 3], args)
    with pytest.raises(AssertionError, match="result 1"):
        run_example(lambda x: (x, x + 1), lambda x: (x, x), args)
    with pytest.raises(AssertionError, match="gives 1 results, expected 2"):
        run_example(lambda x: x, lambda x: (x, x), args)


def test_gradients_are_compared_when_asked_for():
    args = (torch.randn(8, requires_grad=True),)
    wrong = lambda x: Square.apply(x, 3.0)  # noqa: E731
    run_example(wrong, torch.square, args)
    run_example(lambda x: Square.apply(x, 2.0), torch.square, args, bwd=True)
    with pytest.raises(AssertionError, match="result 1"):
        run_example(wrong, torch.square, args, bwd=True)


def test_functions_that_change_their_arguments_get_fresh_ones():
    # Were arguments shared, each function would begin with what the one before it left.
    functions = {"first": lambda x: x.add_(1), "second": lambda x: x.add_(1)}
    run_example(functions, lambda x: x.add_(1).clone(), (torch.zeros(4),), rtol=0, atol=0)
