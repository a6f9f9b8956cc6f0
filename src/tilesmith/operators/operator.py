"""One operator of torch: a kernel with arguments of one structure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import torch

import tilesmith.exc as errors
from tilesmith.operators.batching.gradient import BatchedGradient
from tilesmith.operators.batching.operator import NOT_IN_TRANSFORMS, Batching
from tilesmith.operators.gradient import Gradient, needs_gradient
from tilesmith.operators.inside import (
    NAMESPACE,
    InnerOperator,
    check_tangents,
    implement,
    is_traced,
)
from tilesmith.operators.outline import (
    KernelHost,
    Outline,
    made_tensors,
    outline_call,
    result_of,
    returned_tensors,
    views_in,
)
from tilesmith.operators.structure import SCHEMA_TYPES, Parts, Structure


class KernelOperator:
    """The operator ``tilesmith::name``; it returns the tensors that a call makes."""

    def __init__(
        self,
        kernel: KernelHost,
        find_name: Callable[[str], str],
        structure: Structure,
        outline: Outline,
    ) -> None:
        name = find_name(kernel.name)
        self.kernel = kernel
        self.structure = structure
        self._leaves = structure.leaf_names(kernel.parameters)
        self._are_tensors = [SCHEMA_TYPES[kind] == "Tensor" for kind, _ in self._leaves]
        self.outline = outline
        written = self._written_names()
        self.definition = torch.library.custom_op(
            f"{NAMESPACE}::{name}",
            self.run,
            mutates_args=written,
            schema=self._schema(written),
        )
        self.definition.register_fake(self.fake)
        self.definition.register_vmap(Batching(self, kernel, name, find_name))
        implement(name, self.run)
        plain = None if written else InnerOperator(name, self._schema(()), self.run, self.fake)
        self._inner = plain
        self.gradient: OperatorGradient | None = None
        """How its gradient is computed; None where it has none."""
        self._functional: FunctionalOperator | None = None
        if kernel.gradient is not None and not written:
            self.gradient = RegisteredGradient(kernel, kernel.gradient, self)
        elif kernel.gradient is None and kernel.is_derived:
            self.gradient = DerivedOperator(kernel, find_name(f"{name}_backward"), structure, self)
        if self.gradient is not None and written:
            functional = find_name(f"{name}_functional")
            self._functional = FunctionalOperator(self, functional, self.gradient)
        elif self.gradient is not None and outline.num_new:
            save = self.gradient.save
            self.definition.register_autograd(self.gradient.backward, setup_context=save)

    def __call__(self, parts: Parts) -> list[torch.Tensor]:
        """The tensors that a call makes."""
        if self._functional is not None and needs_gradient(parts.tensors):
            return self._functional(parts)
        leaves = self.structure.in_order(parts)
        if self._inner is not None and any(map(is_traced, parts.tensors)):
            made = self._inner(leaves, self.gradient if needs_gradient(parts.tensors) else None)
        else:
            made = self.definition(*leaves)
        if self.outline.num_new == 1:
            return [made]
        return list(made) if made is not None else []

    def with_views(self, parts: Parts) -> list[torch.Tensor]:
        """The tensors that a call makes, then views of arguments as host code takes them."""
        made = self(parts)
        if self.outline.num_views == 0:
            return made
        result, _ = self.kernel.run_host(self.structure.put_together(parts))
        return [*made, *views_in(result, self.outline)]

    def leaves(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments of the operator for arguments of the kernel.

        Example:
            ``torch.library.opcheck(operator.definition, operator.leaves(args))``
        """
        return tuple(self.structure.leaf_values(args))

    def schema_of_leaves(self) -> str:
        """The arguments as a schema has them, none of them written."""
        return ", ".join(f"{SCHEMA_TYPES[kind]} {leaf}" for kind, leaf in self._leaves)

    def _written_names(self) -> list[str]:
        names = [name for kind, name in self._leaves if SCHEMA_TYPES[kind] == "Tensor"]
        return [name for i, name in enumerate(names) if i in self.outline.written]

    def _schema(self, written: Sequence[str]) -> str:
        listed: list[str] = []
        for kind, name in self._leaves:
            mark = f"(a{len(listed)}!)" if name in written else ""
            listed.append(f"{SCHEMA_TYPES[kind]}{mark} {name}")
        returned = ", ".join(["Tensor"] * self.outline.num_new)
        result = returned if self.outline.num_new == 1 else f"({returned})"
        return f"({', '.join(listed)}) -> {result}"

    def leaf_gradients(self, found: Sequence[Any]) -> tuple[Any, ...]:
        """A gradient for each leaf, from one for each parameter of the kernel."""
        pairs = zip(self.structure.leaf_values(found), self._are_tensors)
        return tuple([given if is_tensor else None for given, is_tensor in pairs])

    def returned(self, result: Any) -> Any:
        """What the operator returns, of the kernel's result."""
        if self.outline.is_plain:
            return result
        made = made_tensors(result, self.outline)
        return tuple(made) if len(made) > 1 else next(iter(made), None)

    def run(self, *values: Any) -> Any:
        """Run the kernel on tensors that have memory; returns what the operator does."""
        check_tangents(self.kernel.name, values)
        return self.returned(self.kernel.run(self.structure.arguments(values)))

    def fake(self, *values: Any) -> Any:
        """What the operator returns, without launches."""
        return self.returned(self.kernel.run_host(self.structure.arguments(values))[0])


class FunctionalOperator:
    """An operator that writes, as one that returns what it would have written.

    torch differentiates through those only; what it returns is then copied to where it belongs.
    """

    def __init__(self, forward: KernelOperator, name: str, gradient: OperatorGradient) -> None:
        self._forward = forward
        self._written = sorted(forward.outline.written)
        count = forward.outline.num_new + len(self._written)
        returned = ", ".join(["Tensor"] * count)
        self.definition = torch.library.custom_op(
            f"{NAMESPACE}::{name}",
            self._run,
            mutates_args=(),
            schema=f"({forward.schema_of_leaves()}) -> ({returned})",
        )
        self.definition.register_fake(self._fake)
        self.definition.register_autograd(gradient.backward, setup_context=gradient.save)

    def __call__(self, parts: Parts) -> list[torch.Tensor]:
        """The tensors that a call makes; what it writes is changed."""
        found = self.definition(*self._forward.structure.in_order(parts))
        made = [found] if isinstance(found, torch.Tensor) else list(found)
        count = self._forward.outline.num_new
        for number, changed in zip(self._written, made[count:]):
            parts.tensors[number].copy_(changed)
        return made[:count]

    def _run(self, *values: Any) -> Any:
        parts = self._forward.structure.by_kind(values)
        for number in self._written:
            parts.tensors[number] = parts.tensors[number].clone()
        made = self._forward.run(*self._forward.structure.in_order(parts))
        return self._all(made, [parts.tensors[number] for number in self._written])

    def _fake(self, *values: Any) -> Any:
        tensors = self._forward.structure.by_kind(values).tensors
        made = self._forward.fake(*values)
        return self._all(made, [torch.empty_like(tensors[number]) for number in self._written])

    def _all(self, made: Any, changed: list[torch.Tensor]) -> Any:
        new = [] if made is None else [made] if isinstance(made, torch.Tensor) else list(made)
        found = [*new, *changed]
        return found[0] if len(found) == 1 else tuple(found)


class OperatorGradient(Protocol):
    """How the gradient of an operator is computed."""

    def save(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what ``backward`` needs."""
        ...

    def backward(self, ctx: Any, *gradients: Any) -> Any:
        """A gradient or None for each leaf, from those of the tensors that a call makes."""
        ...


class RegisteredGradient:
    """What was registered for a kernel."""

    def __init__(self, kernel: KernelHost, gradient: Gradient, forward: KernelOperator) -> None:
        self._kernel, self._gradient, self._forward = kernel, gradient, forward

    def save(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Hand the arguments and the result of a call to what was registered."""
        outline, given = self._forward.outline, self._forward.structure.by_kind(inputs).tensors
        made = [] if output is None else [output] if outline.num_new == 1 else list(output)
        result = result_of(outline.recipe, given, made)
        self._gradient.save(ctx, self._forward.structure.arguments(inputs), result)

    def save_call(self, ctx: Any, args: tuple[Any, ...], result: Any) -> None:
        """The same with arguments and result of the kernel."""
        self._gradient.save(ctx, args, result)

    def backward(self, ctx: Any, *gradients: Any) -> Any:
        """What the registered function gives."""
        kernel = self._kernel
        found = self._gradient.of_parameters(ctx, gradients, kernel.name, len(kernel.parameters))
        return self._forward.leaf_gradients(found)


class DerivedOperator:
    """The derived backward of an operator, as another operator: graphs go back through it too."""

    def __init__(
        self, kernel: KernelHost, name: str, structure: Structure, forward: KernelOperator
    ) -> None:
        self._kernel = kernel
        self.name = kernel.name
        self.structure = structure
        self._leaves = structure.leaf_names(kernel.parameters)
        self.outline = forward.outline
        self._returned = returned_tensors(forward.outline.recipe)
        lists = f"Tensor?[] gradients, Tensor[] results, {forward.schema_of_leaves()}"
        schema = f"({lists}) -> Tensor[]"
        self.definition = torch.library.custom_op(
            f"{NAMESPACE}::{name}", self.run, mutates_args=(), schema=schema
        )
        self._schema = name, schema
        self.definition.register_fake(self._fake)
        self.definition.register_vmap(self._vmap)
        implement(name, self.run)

    @cached_property
    def batched(self) -> BatchedGradient:
        """The operator for a batch."""
        name, schema = self._schema
        return BatchedGradient(self, self._kernel, f"{name}_batched", schema)

    def save(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep the arguments of a call and, so that it need not run again, its results."""
        parts = self.structure.by_kind(inputs)
        places = [i for i, (kind, _) in enumerate(self._leaves) if SCHEMA_TYPES[kind] == "Tensor"]
        for number in self.outline.written:
            if ctx.needs_input_grad[places[number]]:
                reason = f"`{self._leaves[places[number]][1]}`, of which a gradient is wanted, is"
                reason += " changed in place"
                raise errors.AutodiffNotSupported(function=self.name, reason=reason)
            # It will have been changed by then; no gradient depends on what it held.
            parts.tensors[number] = torch.empty_like(parts.tensors[number])
        made = [output] if isinstance(output, torch.Tensor) else list(output or ())
        results = [] if self.outline.written else made
        ctx.save_for_backward(*parts.tensors, *results)
        ctx.numbers = parts.integers, parts.floats
        ctx.num_arguments = len(parts.tensors)

    def backward(self, ctx: Any, *gradients: Any) -> Any:
        """A gradient for each float tensor among the leaves."""
        count = ctx.num_arguments
        parts = Parts(ctx.saved_tensors[:count], *ctx.numbers)
        results = ctx.saved_tensors[count:]
        found = iter(self.call(gradients, results, self.structure.in_order(parts)))
        tensors = iter(parts.tensors)
        return tuple(
            next(found) if SCHEMA_TYPES[kind] == "Tensor" and _is_float(next(tensors)) else None
            for kind, _ in self._leaves
        )

    def call(
        self, gradients: Sequence[Any], results: Sequence[Any], leaves: Sequence[Any]
    ) -> Sequence[torch.Tensor]:
        """Call the operator, also under a transform that differentiates."""
        try:
            return self.definition(list(gradients), list(results), *leaves)
        except RuntimeError as error:
            if NOT_IN_TRANSFORMS not in str(error):
                raise
        counts = len(gradients), len(results)
        return _FirstDerivative.apply(*gradients, *results, *leaves, self, counts)

    def run(
        self, gradients: list[torch.Tensor | None], results: list[torch.Tensor], *values: Any
    ) -> list[torch.Tensor]:
        """The gradient of each float leaf."""
        given = [None if number is None else gradients[number] for number in self._returned]
        changed = gradients[self.outline.num_new :]
        made = [None if number is None else results[number] for number in self._returned]
        kept = () if self.outline.written else (made,)
        args = self.structure.arguments(values)
        found = self._kernel.run_backward(args, given, changed, *kept)
        return [
            torch.zeros_like(tensor) if grad is None else grad.contiguous()
            for tensor, grad in zip(self.structure.by_kind(values).tensors, found)
            if _is_float(tensor)
        ]

    def _fake(self, gradients: Any, results: Any, *values: Any) -> list[torch.Tensor]:
        tensors = self.structure.by_kind(values).tensors
        return [
            torch.empty_like(t, memory_format=torch.contiguous_format)
            for t in tensors
            if _is_float(t)
        ]

    def _vmap(self, info: Any, in_dims: Sequence[Any], *values: Any) -> Any:
        return self.batched.over(info.batch_size, in_dims, values)


class _FirstDerivative(torch.autograd.Function):
    """A backward under a transform of ``torch.func``, which would differentiate it once more."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> tuple[torch.Tensor, ...]:
        """Call the operator, one transform further inside."""
        *values, operator, (count, kept) = inputs
        rest = values[count:]
        return tuple(operator.call(values[:count], rest[:kept], rest[kept:]))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Know whom an error is about."""
        ctx.name = inputs[-2].name

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Refuse."""
        reason = "torch.func differentiates it twice; torch.autograd can, in eager mode"
        raise errors.AutodiffNotSupported(function=ctx.name, reason=reason)


def _is_float(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point()


def plan_operator(
    kernel: KernelHost, structure: Structure, parts: Parts, find_name: Callable[[str], str]
) -> KernelOperator:
    """Make the operator for arguments of this structure; raises NoOperatorError."""
    outline = outline_call(kernel, structure.put_together(parts), parts.tensors, parts.integers)
    return KernelOperator(kernel, find_name, structure, outline)
