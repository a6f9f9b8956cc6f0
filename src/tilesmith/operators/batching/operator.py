"""Operators for a batch of calls: what ``torch.vmap`` makes of the operator of a kernel.

``tilesmith::name_batched`` takes what the operator takes, every tensor with the batch in front;
what is the same for all elements is expanded, which costs no memory. It is one launch where the
kernel can have a grid axis more, and one call for each element elsewhere. Under another ``vmap``
it becomes the operator with two batch dimensions, and so on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import torch

from tilesmith.operators.gradient import needs_gradient
from tilesmith.operators.inside import NAMESPACE, implement
from tilesmith.operators.outline import Outline, returned_tensors
from tilesmith.operators.structure import Structure

NOT_IN_TRANSFORMS = "functorch transforms"
"""In torch's error about operators that a transform differentiates, registered gradient or not."""


class BatchedKernel(Protocol):
    """Calls of a kernel for a batch."""

    def run(
        self, args: tuple[Any, ...], depth: int, *, is_recorded: bool = False
    ) -> list[torch.Tensor] | None:
        """The tensors that calls return, in order; None: each element needs a call of its own."""
        ...


class ElementOperator(Protocol):
    """The operator for one element."""

    structure: Structure
    outline: Outline
    gradient: Any

    @property
    def definition(self) -> Callable[..., Any]:
        """What torch calls."""
        ...

    def schema_of_leaves(self) -> str:
        """The arguments as a schema has them."""
        ...

    def run(self, *values: Any) -> Any:
        """Run the kernel."""
        ...

    def fake(self, *values: Any) -> Any:
        """What it returns, without memory."""
        ...


class BatchedBackward(Protocol):
    """Gradients of calls for a batch."""

    def backward(self, ctx: Any, *gradients: Any) -> Any:
        """A gradient or None for each leaf."""
        ...


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Keep the leaves and the results of a call for a batch."""
    results = [output] if isinstance(output, torch.Tensor) else output
    ctx.save_for_backward(*(x for x in (*inputs, *results) if isinstance(x, torch.Tensor)))
    ctx.others = [None if isinstance(leaf, torch.Tensor) else (leaf,) for leaf in inputs]


class Batching:
    """The batching rule of one operator."""

    def __init__(
        self, operator: ElementOperator, kernel: Any, name: str, find_name: Callable[[str], str]
    ) -> None:
        self.operator = operator
        self._kernel: BatchedKernel | None = getattr(kernel, "batched", None)
        self._name, self._find_name = name, find_name

    def __call__(self, info: Any, in_dims: Sequence[int | None], *values: Any) -> Any:
        """What ``torch.library.register_vmap`` asks for."""
        outline = self.operator.outline
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        is_plain = outline.num_new and not (outline.written or outline.num_views)
        if self._kernel is None or not is_plain:
            return call_each(self.operator, info.batch_size, in_dims, values)
        is_recorded = needs_gradient(tensors)
        if is_recorded and self._gradient is None:
            return call_each(self.operator, info.batch_size, in_dims, values)
        try:
            return self._first.over(info.batch_size, in_dims, values)
        except RuntimeError as error:
            # Transforms do not differentiate operators: they go back through each element.
            if not is_recorded or NOT_IN_TRANSFORMS not in str(error):
                raise
        return call_each(self.operator, info.batch_size, in_dims, values)

    @property
    def _gradient(self) -> BatchedBackward | None:
        """What goes back through a batch at once; registered gradients know one element only."""
        return getattr(self.operator.gradient, "batched", None)

    @cached_property
    def _first(self) -> BatchedOperator:
        assert self._kernel is not None
        made = BatchedOperator(self.operator, self._kernel, self._name, self._find_name)
        if self._gradient is not None:
            made.definition.register_autograd(self._gradient.backward, setup_context=_save)
        return made


def call_each(
    operator: Any, size: int, in_dims: Sequence[int | None], values: Sequence[Any]
) -> Any:
    """One call for each element of the batch; results are stacked."""
    count = operator.outline.num_new
    calls = [
        operator.definition(*(element(value, dim, i) for value, dim in zip(values, in_dims)))
        for i in range(size)
    ]
    if count == 0:
        return None, None
    if count == 1:
        return torch.stack(calls), 0
    return tuple(map(torch.stack, zip(*calls))), (0,) * count


class BatchedOperator:
    """The operator for a batch with some number of dimensions."""

    def __init__(
        self,
        element_operator: ElementOperator,
        kernel: BatchedKernel,
        name: str,
        find_name: Callable[[str], str],
        depth: int = 1,
    ) -> None:
        self._element, self._kernel = element_operator, kernel
        self._name, self._find_name, self._depth = name, find_name, depth
        self.outline = element_operator.outline
        count = element_operator.outline.num_new
        returned = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
        own = find_name(f"{name}_batched")
        self.definition = torch.library.custom_op(
            f"{NAMESPACE}::{own}",
            self._run,
            mutates_args=(),
            schema=f"({element_operator.schema_of_leaves()}) -> {returned}",
        )
        self.definition.register_fake(self._fake)
        self.definition.register_vmap(self._vmap)
        implement(own, self._run)

    @cached_property
    def _next(self) -> BatchedOperator:
        depth = self._depth + 1
        return BatchedOperator(self._element, self._kernel, self._name, self._find_name, depth)

    def over(self, size: int, in_dims: Sequence[int | None], values: Sequence[Any]) -> Any:
        """Call it with dimensions moved to the front, and say where results have them."""
        count = self._element.outline.num_new
        made = self.definition(*map(in_front, values, in_dims, itertools.repeat(size)))
        return made, 0 if count == 1 else (0,) * count

    def _vmap(self, info: Any, in_dims: Sequence[int | None], *values: Any) -> Any:
        if needs_gradient([value for value in values if isinstance(value, torch.Tensor)]):
            return call_each(self, info.batch_size, in_dims, values)
        return self._next.over(info.batch_size, in_dims, values)

    def _run(self, *values: Any) -> Any:
        element_operator = self._element
        made = self._kernel.run(element_operator.structure.arguments(values), self._depth)
        if made is None:
            return self._one_by_one(values)
        found = made_of(element_operator.outline, made)
        return self._returned([_dense(one, self._depth) for one in found])

    def _one_by_one(self, values: Sequence[Any]) -> Any:
        """One call for each element."""
        first = next(value for value in values if isinstance(value, torch.Tensor))
        results = [torch.empty_like(one) for one in self._as_list(self._fake(*values))]
        for place in itertools.product(*map(range, first.shape[: self._depth])):
            given = (v[place] if isinstance(v, torch.Tensor) else v for v in values)
            for result, one in zip(results, self._as_list(self._element.run(*given))):
                result[place] = one
        return self._returned(results)

    def _fake(self, *values: Any) -> Any:
        batch = next(v for v in values if isinstance(v, torch.Tensor)).shape[: self._depth]
        elements = [
            torch.empty_strided(
                v.shape[self._depth :], v.stride()[self._depth :], dtype=v.dtype, device=v.device
            )
            if isinstance(v, torch.Tensor)
            else v
            for v in values
        ]
        made = self._as_list(self._element.fake(*elements))
        return self._returned([_dense_like(one, batch) for one in made])

    def _as_list(self, made: Any) -> list[torch.Tensor]:
        return [made] if isinstance(made, torch.Tensor) else list(made)

    def _returned(self, made: list[torch.Tensor]) -> Any:
        return made[0] if len(made) == 1 else tuple(made)


def made_of(outline: Outline, returned: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that calls make, of those that they return."""
    numbers = returned_tensors(outline.recipe)
    found = {number: tensor for number, tensor in zip(numbers, returned) if number is not None}
    return [found[number] for number in range(outline.num_new)]


def element(value: Any, dim: int | None, index: int) -> Any:
    """One element of a value that has a batch dimension; others are the same for all."""
    return value if dim is None else value.select(dim, index)


def in_front(value: Any, dim: int | None, size: int) -> Any:
    """The value with the batch in front; one that is the same for all is repeated."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)


def _dense_like(one: torch.Tensor, batch: Sequence[int]) -> torch.Tensor:
    """Memory for a batch of tensors like one, each of them as that is."""
    reach = 1
    for size, stride in zip(one.shape, one.stride()):
        reach += (size - 1) * stride
    reach = reach if one.numel() else 0
    lead: list[int] = []
    for size in reversed(batch):
        lead.insert(0, reach)
        reach *= size
    strides = (*lead, *one.stride())
    return torch.empty_strided((*batch, *one.shape), strides, dtype=one.dtype, device=one.device)


def _dense(made: torch.Tensor, depth: int) -> torch.Tensor:
    """The same elements where ``_dense_like`` has them."""
    one = torch.empty_strided(
        made.shape[depth:], made.stride()[depth:], dtype=made.dtype, device="meta"
    )
    wanted = _dense_like(one, made.shape[:depth])
    if made.stride() == wanted.stride() and not made.storage_offset():
        return made
    return torch.empty_strided(
        made.shape, wanted.stride(), dtype=made.dtype, device=made.device
    ).copy_(made)
