"""The part of a kernel that torch's tracers and autograd see."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property, partial
from typing import Any, cast

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.kernel_warnings import GradientDropped
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.frontend.trace import HostReturnedError
from tilesmith.gradients.derived import DerivedBackward
from tilesmith.jit.call_finder import is_traced
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.graphs.host import Gradients, GraphHost
from tilesmith.jit.shards.call import ShardedCalls, is_distributed
from tilesmith.jit.specialization_key import leaves, tensors_of
from tilesmith.jit.visible.profiling import observe
from tilesmith.operators.gradient import (
    Backward,
    Gradient,
    SetupContext,
    needs_gradient,
    stands_for_another,
)
from tilesmith.operators.graph_call import GraphCalls, add_calls
from tilesmith.operators.inside import check_tangents
from tilesmith.operators.operator import NOT_IN_TRANSFORMS, KernelOperator


class GraphKernel:
    """Calls of a kernel that are nodes of graphs, or of autograd's."""

    definition: KernelDefinition
    gradient: Gradient | None = None
    """How its gradient is computed."""
    _bound_kernels: Any

    def _join_graphs(self, host: GraphHost) -> None:
        """Begin anew: what graphs know of it was of another definition."""
        function = self.definition.fn
        name = f"{function.__module__}:{function.__qualname__}"
        parameters = list(self.definition.arguments.plain.parameters.values())
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        rest = next((i for i, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL), None)
        self._backwards: dict[Any, DerivedBackward] = {}
        self._in_graphs = add_calls(name, lambda handle: GraphCalls(host, handle, defaults, rest))

    @cached_property
    def _on_shards(self) -> ShardedCalls:
        """Calls with tensors that are spread over processes."""
        return ShardedCalls(cast("Any", self))

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
            return partial(self.register_backward, setup_context=setup_context)
        self.gradient = Gradient(backward, setup_context)
        self._in_graphs.forget()
        for bound in self._bound_kernels.values():
            bound.recorded = None
        return backward

    def backward_source(self, args: tuple[Any, ...] | list[Any]) -> str:
        """The backward kernel that is derived for such arguments, as source in the language.

        Example:
            ``print(softmax.backward_source((x,)))``
        """
        bound = self._bound_alone(self.definition.arguments.unpack(args))
        if bound is None:
            raise errors.AutodiffNotSupported(
                function=self.definition.name, reason="it has several launches"
            )
        return self._derived(bound).source

    def run_backward(self, args: tuple[Any, ...], *gradients: Gradients) -> Gradients:
        """The derived gradient of each tensor argument, for those of the returned tensors."""
        return self._derived(self._bound_alone(args)).run(args, *gradients)

    def _recorded_call(self, args: tuple[Any, ...]) -> Callable[[], Any] | None:
        """What runs a call that torch traces, or goes back through; None for any other."""
        tensors = tensors_of(args)
        check_tangents(self.definition.name, tensors)
        if any(map(is_distributed, tensors)):
            return partial(self._on_shards.call, args)
        if is_traced():
            return partial(self._in_graphs.call, args)
        # While a transform of torch.func runs, what host code makes has no memory either.
        if any(map(stands_for_another, (*tensors, torch.empty(1, device="cpu")))):
            return partial(self._in_graphs.call_transformed, args)
        if not needs_gradient(tensors):
            return None
        try:
            bound = self._bound_alone(args)
        except HostReturnedError:
            if self.gradient is None:
                return None  # torch goes back through what host code does
            bound = None
        found = self._found_recorded(args, bound)
        if found is None and self.gradient is not None:
            return partial(self._in_graphs.call, args)
        run = None if found is None else partial(self._run_recorded, found)
        if bound is not None and (self.gradient is not None or not bound.written_arguments):
            bound.recorded = run  # found by native code from now on
        return None if run is None else partial(observe, self.definition.name, run, *args)

    def _run_recorded(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except RuntimeError as error:
            if NOT_IN_TRANSFORMS not in str(error):
                raise
        return self._in_graphs.call_transformed(args)

    def _found_recorded(self, args: tuple[Any, ...], bound: Any) -> Callable[..., Any] | None:
        """What runs calls like this one so that torch goes back through them, if anything does."""
        if self.gradient is not None:
            return self._in_graphs.recorded(args, bound)
        check_gradients(self.definition, bound and bound.written_arguments, args)
        is_derived = bound is not None and self.definition.settings.missing_gradient == "derive"
        return self._derived(bound).call if is_derived else None

    def _bound_alone(self, args: tuple[Any, ...]) -> Any:
        """The kernel for these arguments; None where it has several launches."""
        raise NotImplementedError

    def _derived(self, bound: Any) -> DerivedBackward:
        if bound not in self._backwards:
            kept = {*self._bound_kernels.values()}
            self._backwards = {b: made for b, made in self._backwards.items() if b in kept}
            self._backwards[bound] = DerivedBackward(bound)
        return self._backwards[bound]


def check_gradients(
    definition: KernelDefinition, written: Collection[int] | None, args: tuple[Any, ...]
) -> None:
    """Warn, or raise where the setting says so; raise where a leaf would be changed.

    ``written``: positions of arguments; None of a kernel of several launches.
    """
    wanted = list(_requiring(definition, args))
    for position, name, tensor in wanted:
        if position in (written or ()) and tensor.is_leaf:
            raise errors.LeafChangedInPlace(function=definition.name, argument=name)
    function, argument = definition.name, wanted[0][1]
    choice = definition.settings.missing_gradient
    if choice == "error":
        raise errors.GradientNotAvailable(function=function, argument=argument)
    if choice == "warn" or (choice == "derive" and written is None):
        code = definition.fn.__code__
        loc = SourceLocation(code.co_filename, code.co_firstlineno, function)
        definition.warnings.warn(GradientDropped, loc=loc, function=function, argument=argument)


def _requiring(definition: KernelDefinition, args: tuple[Any, ...]) -> Any:
    for position, (name, argument) in enumerate(zip(definition.parameters, args)):
        for place, leaf in leaves(argument, name):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                yield position, place, leaf
