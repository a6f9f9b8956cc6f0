"""The part of a kernel that torch's tracers and autograd see."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

import torch

from tilesmith.frontend.containers import tensors_in
from tilesmith.jit.call_finder import is_traced
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.graphs.host import GraphHost
from tilesmith.jit.graphs.missing_gradients import check_gradients
from tilesmith.operators.gradient import Backward, Gradient, SetupContext, needs_gradient
from tilesmith.operators.graph_call import GraphCalls, process_calls
from tilesmith.operators.operator import KernelOperator


class GraphKernel:
    """Calls of a kernel that are nodes of graphs, or of autograd's."""

    definition: KernelDefinition
    gradient: Gradient | None = None
    """How its gradient is computed."""

    def _join_graphs(self, host: GraphHost) -> None:
        """Begin anew: what graphs know of it was of another definition."""
        function = self.definition.fn
        name = f"{function.__module__}:{function.__qualname__}"
        parameters = self.definition.arguments.plain.parameters.values()
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        self._in_graphs = process_calls().add(
            name, lambda handle: GraphCalls(host, handle, defaults)
        )

    def operator(self, args: tuple[Any, ...] | list[Any]) -> KernelOperator:
        """The operator of torch that calls with such arguments are in a graph."""
        return self._in_graphs.operator(self.definition.arguments.unpack(args))

    def register_backward(
        self, backward: Backward | None = None, *, setup_context: SetupContext | None = None
    ) -> Any:
        """Compute gradients of this kernel by a function, as ``torch.autograd.Function`` does.

        Args:
            backward: called with a context and the gradient of each tensor that the kernel
                returns; gives a gradient for each parameter, None where there is none.
            setup_context: called with the context, the arguments and the result of a call; saves
                what backward needs. Without it the context has all tensors, in ``saved_tensors``:
                those of the arguments, then those of the result.

        Example:
            ``@softmax.register_backward`` above ``def softmax_gradient(ctx, grad): ...``
        """
        if backward is None:
            return functools.partial(self.register_backward, setup_context=setup_context)
        self.gradient = Gradient(backward, setup_context)
        self._in_graphs.forget()
        return backward

    def _is_recorded(self, args: tuple[Any, ...]) -> bool:
        """Whether this call is a node: torch traces it, or goes back through it."""
        if is_traced() or any(map(_stands_for_another, tensors_in(args))):
            return True
        if not needs_gradient(args):
            return False
        if self.gradient is None:
            check_gradients(self.definition, self._written(args), args)
        return self.gradient is not None

    def _written(self, args: tuple[Any, ...]) -> Collection[int]:
        """Positions of arguments that a call writes."""
        raise NotImplementedError


def _stands_for_another(tensor: torch.Tensor) -> bool:
    """Whether torch made a tensor for tracing or for a transform: it has no memory of its own."""
    is_dense = tensor.layout is torch.strided and not tensor.is_nested
    if not is_dense or tensor.is_meta or not type(tensor).__module__.startswith("torch"):
        return False  # has a refusal of its own
    try:
        return tensor.numel() != 0 and tensor.untyped_storage().data_ptr() == 0
    except RuntimeError:
        return True
