"""Derived gradients of random programs, compared with autograd of what whole tensors compute.

Programs of this mode add, subtract and multiply whole numbers: their gradients are whole numbers
too, which a kernel must find exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tests.fuzzing.layouts import Placed
from tests.fuzzing.oracle import expected
from tests.fuzzing.program import Program, UndecidedError

LARGEST = 2.0**18
"""Whole numbers up to here, and sums of a few of them, are exact in every type used."""
MESSAGE = "the gradient of {} has {} wrong elements of {}, first {}: found {}, expected {}"


def gradient_problem(program: Program, arguments: Sequence[Placed], kernel: Any) -> str:
    """What is wrong with the gradients of all float inputs, or nothing; undecided if not exact."""
    names = [spec.name for spec in program.arguments if _has_gradient(spec)]
    wanted = _wanted(program, arguments, names)
    placed = {spec.name: x.copy("cpu").view for spec, x in zip(program.arguments, arguments)}
    leaves = [placed[name].detach().requires_grad_() for name in names]
    given = {**placed, **dict(zip(names, leaves))}
    returned = kernel(*given.values(), *(scalar.value for scalar in program.scalars))
    found = _gradients(program, returned, leaves)
    for name, actual, right in zip(names, found, wanted):
        wrong = actual.double() != right
        if bool(wrong.any()):
            index = tuple(wrong.nonzero()[0].tolist())
            numbers = int(wrong.sum()), wrong.numel(), list(index)
            return MESSAGE.format(name, *numbers, actual[index].item(), right[index].item())
    return ""


def _has_gradient(spec: Any) -> bool:
    return spec.is_data and spec.dtype.is_floating_point


def _wanted(program: Program, arguments: Sequence[Placed], names: list[str]) -> list[torch.Tensor]:
    leaves = {
        spec.name: x.view.double().clone().requires_grad_()
        for spec, x in zip(program.arguments, arguments)
        if spec.name in names
    }
    results = expected(program, arguments, leaves)
    parts = [part.detach() for result in results for part in (result.value, result.error)]
    found = _gradients(program, [result.value for result in results], list(leaves.values()))
    # Rounding on the way would be another question.
    if any(bool((result.error != 0).any()) for result in results):
        raise UndecidedError
    if any(bool((part.abs() > LARGEST).any()) for part in (*parts, *found) if part.numel()):
        raise UndecidedError
    return found


def _gradients(
    program: Program, results: Sequence[torch.Tensor], leaves: list[torch.Tensor]
) -> list[torch.Tensor]:
    """For given whole numbers as gradients of the results; zeros where nothing depends."""
    generator = torch.Generator().manual_seed(program.seed)
    given = [torch.randint(-2, 3, list(x.shape), generator=generator).to(x.dtype) for x in results]
    used = [(x, gradient) for x, gradient in zip(results, given) if x.requires_grad]
    if not used:
        return [torch.zeros_like(leaf) for leaf in leaves]
    roots, gradients = [x for x, _ in used], [gradient for _, gradient in used]
    # Leaves on which nothing depends get zeros.
    return list(torch.autograd.grad(roots, leaves, gradients, materialize_grads=True))
