"""The batching rule of derived gradients: each sample has gradients of its own.

Calls for a whole batch have a gradient like any other. So the forward kernel runs once more for the
batch, and autograd goes back through it: a few launches, however many elements there are. This is
an operator: below all transforms, where autograd can be used for this alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from tilesmith.operators.batching.operator import BatchedKernel, element, in_front, made_of
from tilesmith.operators.inside import NAMESPACE
from tilesmith.operators.outline import Outline
from tilesmith.operators.structure import Structure


class ElementGradient(Protocol):
    """The operator for one element."""

    name: str
    structure: Structure
    outline: Outline

    def run(self, gradients: list[Any], results: list[Any], *values: Any) -> list[torch.Tensor]:
        """The gradient of each float leaf."""
        ...


class BatchedGradient:
    """The operator for a batch; under another ``vmap`` it is called once for each element."""

    def __init__(self, single: ElementGradient, kernel: Any, name: str, schema: str) -> None:
        self._element = single
        self._kernel: BatchedKernel | None = getattr(kernel, "batched", None)
        self.definition = torch.library.custom_op(
            f"{NAMESPACE}::{name}", self._run, mutates_args=(), schema=schema
        )
        self.definition.register_fake(self._fake)
        self.definition.register_vmap(self._vmap)

    def over(self, size: int, in_dims: Sequence[Any], values: Sequence[Any]) -> Any:
        """Call it with dimensions moved to the front, and say where results have them."""
        lists = [[in_front(*pair, size) for pair in one] for one in with_dims(values, in_dims)]
        leaves = [in_front(*pair, size) for pair in zip(values[2:], in_dims[2:])]
        found = self.definition(*lists, *leaves)
        return found, [0] * len(found)

    def backward(self, ctx: Any, *gradients: Any) -> Any:
        """A gradient for each float tensor among the leaves, None for others."""
        tensors = iter(ctx.saved_tensors)
        leaves = [next(tensors) if other is None else other[0] for other in ctx.others]
        found = iter(self.definition(list(gradients), list(tensors), *leaves))
        is_float = [isinstance(x, torch.Tensor) and x.is_floating_point() for x in leaves]
        return tuple(next(found) if has else None for has in is_float)

    def _vmap(self, info: Any, in_dims: Sequence[Any], *values: Any) -> Any:
        calls = [self.definition(*_of_element(values, in_dims, i)) for i in range(info.batch_size)]
        return [torch.stack(found) for found in zip(*calls)], [0] * len(calls[0])

    def _run(self, *values: Any) -> list[torch.Tensor]:
        size = next(v for v in values[2:] if isinstance(v, torch.Tensor)).shape[0]
        found = self._at_once(values[0], values[2:]) if size else self._fake(*values)
        if found is not None:
            return found
        dims = [[0] * len(one) for one in values[:2]]
        dims += [0 if isinstance(value, torch.Tensor) else None for value in values[2:]]  # type: ignore[misc]
        calls = [self._element.run(*_of_element(values, dims, i)) for i in range(size)]
        return [torch.stack(found) for found in zip(*calls)]

    def _at_once(
        self, gradients: Sequence[torch.Tensor | None], leaves: Sequence[Any]
    ) -> list[torch.Tensor] | None:
        outline = self._element.outline
        if self._kernel is None or outline.written or outline.num_views:
            return None
        with torch.inference_mode(False), torch.enable_grad():
            inputs = [_leaf(x) if isinstance(x, torch.Tensor) else x for x in leaves]
            args = self._element.structure.arguments(inputs)
            made = self._kernel.run(args, 1, is_recorded=True)
            if made is None:
                return None
            pairs = [
                (result, gradient)
                for result, gradient in zip(made_of(outline, made), gradients)
                if gradient is not None and result.requires_grad
            ]
            wanted = [x for x in inputs if isinstance(x, torch.Tensor) and x.is_floating_point()]
            grads = _differentiated(pairs, wanted) if pairs else [None] * len(wanted)
        return [
            torch.zeros_like(x, requires_grad=False) if grad is None else grad.contiguous()
            for x, grad in zip(wanted, grads)
        ]

    def _fake(self, *values: Any) -> list[torch.Tensor]:
        tensors = [value for value in values[2:] if isinstance(value, torch.Tensor)]
        return [
            torch.empty_like(x, memory_format=torch.contiguous_format)
            for x in tensors
            if x.is_floating_point()
        ]


def with_dims(values: Sequence[Any], in_dims: Sequence[Any]) -> list[list[tuple[Any, Any]]]:
    """The tensors of the two lists, each with its batch dimension."""
    return [
        [*zip(given, dims if isinstance(dims, list) else [dims] * len(given))]
        for given, dims in zip(values[:2], in_dims)
    ]


def _of_element(values: Sequence[Any], in_dims: Sequence[Any], index: int) -> list[Any]:
    lists = [[element(*pair, index) for pair in one] for one in with_dims(values, in_dims)]
    return [*lists, *(element(*pair, index) for pair in zip(values[2:], in_dims[2:]))]


def _differentiated(
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], wanted: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor | None]:
    results, gradients = zip(*pairs)
    return torch.autograd.grad(results, wanted, gradients, allow_unused=True)


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_(tensor.is_floating_point())
