"""Mistakes where kernels are operators of torch: in graphs, with gradients, on shards."""

from __future__ import annotations

from tilesmith.diagnostics.catalogue import BaseError


class NoOperator(BaseError):
    """Calls of a kernel cannot be one node of a graph."""

    message = "kernel `{function}` cannot be an operator of torch: {problem}"
    fix = "call it outside of the graph; torch.compile without fullgraph=True does that by itself"


class NotOnShards(BaseError):
    """A kernel is called with DTensors, and on their shards it would not be right."""

    message = "kernel `{function}` cannot run on shards of DTensors: {problem}"
    fix = (
        "redistribute the arguments first, `x.redistribute(placements=[Replicate()])`; or call it\n"
        "on `x.to_local()`, and make a DTensor of the result by `DTensor.from_local`"
    )


class SubclassWithoutKernel(BaseError, TypeError):
    """A subclass of tensor does not know the operator that a kernel is."""

    message = "kernel `{function}` is an operator that tensors of class `{kind}` do not know"
    fix = "handle it in `__torch_dispatch__`, or pass the tensors that the argument is made of"


class WrongGradients(BaseError, ValueError):
    """A backward function gives more gradients than there are parameters."""

    message = "the backward of kernel `{function}` gives {count} gradients"
    expected = "one for each of its {num} parameters, None for what has none"


class GradientNotAvailable(BaseError, RuntimeError):
    """An argument requires a gradient, and the kernel has none."""

    message = "`{argument}` requires a gradient, but kernel `{function}` has no backward"
    fix = (
        "give it one: {function}.register_backward(...); or call it under torch.no_grad(), or with "
        "`{argument}.detach()`"
    )


class NoForwardMode(BaseError, NotImplementedError):
    """A kernel is called with dual numbers, whose tangents it would lose."""

    message = "kernel `{function}` has no derivative in forward mode, and would lose tangents"
    fix = "go backwards: torch.func.vjp or torch.autograd.grad; or pass `unpack_dual(x).primal`"


class LeafChangedInPlace(BaseError, RuntimeError):
    """A kernel would write a tensor whose gradient is wanted."""

    message = "kernel `{function}` writes `{argument}`, a leaf that requires a gradient"
    fix = "call it under torch.no_grad(), as optimizers do, or pass a copy"


class KernelNotFound(BaseError):
    """A graph from another process names a kernel that is not here."""

    message = "a graph calls the kernel `{handle}`, which module `{module}` does not define"
    fix = "import the version of the module that has `{name}`"
