"""Hand-written backward kernels against numerical derivatives of the forward, in fp64."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.examples.gradient_cases import GRADIENTS, Args, GradientCase

EXAMPLES = Path(__file__).parents[2] / "examples"


def check_gradient(function: type[torch.autograd.Function], args: Args) -> None:
    """Compare the outputs that have a gradient with differences of the forward."""
    outputs = as_tuple(function.apply(*args))
    chosen = [place for place, out in enumerate(outputs) if out.requires_grad]

    def differentiable(*given: Any) -> tuple[torch.Tensor, ...]:
        found = as_tuple(function.apply(*given))
        return tuple(found[place] for place in chosen)

    assert torch.autograd.gradcheck(differentiable, args)


def as_tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("case", GRADIENTS, ids=str)
def test_backward_is_the_derivative_of_forward(case: GradientCase) -> None:
    check_gradient(case.function, case.make_args())


@pytest.mark.parametrize("case", GRADIENTS, ids=str)
def test_a_wrong_gradient_would_be_noticed(case: GradientCase) -> None:
    class Wrong(case.function):  # type: ignore[misc, name-defined]
        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            first, *others = as_tuple(case.function.backward(ctx, *grads))
            return first + 1e-3 * first.abs().max(), *others

    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        check_gradient(Wrong, case.make_args())


def functions_in(path: Path) -> set[str]:
    """Names of the autograd functions that a file defines."""
    tree = ast.parse(path.read_text())
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {
        node.name
        for node in classes
        if any(ast.unparse(base).endswith("autograd.Function") for base in node.bases)
    }


def test_every_function_of_the_gallery_is_checked() -> None:
    written = {name for path in EXAMPLES.rglob("*.py") for name in functions_in(path)}
    assert written == {case.function.__name__ for case in GRADIENTS}
