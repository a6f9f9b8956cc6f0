"""One operator of torch: a kernel with arguments of one structure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.operators.outline import (
    KernelHost,
    Outline,
    made_tensors,
    outline_call,
    result_of,
)
from tilesmith.operators.structure import (
    SCHEMA_TYPES,
    Parts,
    Structure,
    by_kind,
    in_order,
    take_apart,
)

NAMESPACE = "tilesmith"


class KernelOperator:
    """The operator ``tilesmith::name``; it returns the tensors that a call makes."""

    def __init__(
        self, kernel: KernelHost, name: str, structure: Structure, outline: Outline
    ) -> None:
        self._kernel = kernel
        self._structure = structure
        self._leaves = structure.leaf_names(kernel.parameters)
        self.outline = outline
        written = self._written_names()
        self.definition = torch.library.custom_op(
            f"{NAMESPACE}::{name}",
            self._run,
            mutates_args=written,
            schema=self._schema(written),
        )
        self.definition.register_fake(self._fake)
        self.definition.register_vmap(self._vmap)
        self._gradient = kernel.gradient
        if self._gradient is not None:
            self.definition.register_autograd(self._backward, setup_context=self._save)

    def __call__(self, parts: Parts) -> list[torch.Tensor]:
        """The tensors that a call makes."""
        try:
            made = self.definition(*in_order(self._leaves, parts))
        except RuntimeError as error:
            if "functorch transforms" not in str(error):
                raise
            # torch's own: operators have no gradient there, whether one is registered or not.
            problem = "gradients by transforms of torch.func do not go through operators"
            raise errors.NoOperator(function=self._kernel.name, problem=problem) from error
        if self.outline.num_new == 1:
            return [made]
        return list(made) if made is not None else []

    def leaves(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments of the operator for arguments of the kernel.

        Example:
            ``torch.library.opcheck(operator.definition, operator.leaves(args))``
        """
        parts = Parts()
        for value in args:
            take_apart(value, parts)
        return tuple(in_order(self._leaves, parts))

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

    def _arguments(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], Parts]:
        parts = by_kind(self._leaves, values)
        return self._structure.put_together(parts), parts

    def _returned(self, made: list[torch.Tensor]) -> Any:
        if self.outline.num_new == 0:
            return None
        return made[0] if self.outline.num_new == 1 else tuple(made)

    def _run(self, *values: Any) -> Any:
        args, _ = self._arguments(values)
        return self._returned(made_tensors(self._kernel.run(args), self.outline))

    def _fake(self, *values: Any) -> Any:
        args, _ = self._arguments(values)
        result, _ = self._kernel.run_host(args)
        return self._returned(made_tensors(result, self.outline))

    def _save(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        assert self._gradient is not None
        args, parts = self._arguments(inputs)
        made = [] if output is None else [output] if self.outline.num_new == 1 else list(output)
        self._gradient.save(ctx, args, result_of(self.outline.recipe, parts.tensors, made))

    def _backward(self, ctx: Any, *gradients: Any) -> Any:
        assert self._gradient is not None
        kernel = self._kernel
        found = self._gradient.of_parameters(ctx, gradients, kernel.name, len(kernel.parameters))
        return tuple(self._structure.leaf_values(found))

    def _vmap(self, info: Any, in_dims: Sequence[int | None], *values: Any) -> Any:
        """One call for each element of the batch; results are stacked."""
        calls = [
            self.definition(*(_element(value, dim, i) for value, dim in zip(values, in_dims)))
            for i in range(info.batch_size)
        ]
        if self.outline.num_new == 0:
            return None, None
        if self.outline.num_new == 1:
            return torch.stack(calls), 0
        return tuple(map(torch.stack, zip(*calls))), (0,) * self.outline.num_new


def _element(value: Any, dim: int | None, index: int) -> Any:
    return value if dim is None else value.select(dim, index)


def plan_operator(
    kernel: KernelHost, structure: Structure, parts: Parts, find_name: Callable[[str], str]
) -> KernelOperator:
    """Make the operator for arguments of this structure; raises NoOperatorError."""
    outline = outline_call(kernel, structure.put_together(parts), parts.tensors)
    return KernelOperator(kernel, find_name(kernel.name), structure, outline)
