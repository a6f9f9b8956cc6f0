"""Mistakes in computing with device values: shapes, reductions, dots, unsupported functions."""

from __future__ import annotations

from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.diagnostics.kernel_errors import BackendUnsupported


class ShapeMismatch(BaseError):
    """Shapes that do not broadcast. ``operation`` names what was asked, e.g. "torch.add"."""

    message = "shapes {left} and {right} do not match"
    found = "operands of {operation}"
    note = "two axes are the same only if they come from the same tile or have the same size"
    fix = "align them with [:, None] or keepdim=True"


class DotShapeMismatch(ShapeMismatch, ValueError):
    """The contracted dimensions of a matrix product differ."""

    message = "cannot multiply a matrix {left} by {right}"
    expected = "[m, k] times [k, n], with k the same axis"
    note = ""
    fix = "index both operands with the same tile along k; transpose one with .T if needed"


class DotBatchDimensionMismatch(BaseError):
    """Batch dimensions that differ, neither being 1."""

    message = "batch dimensions of the product differ: {left} and {right}"
    expected = "the same batch axis in both operands, or size 1 in one"


class UnsupportedDotDtype(BaseError, TypeError):
    """Operand types that no matrix unit multiplies."""

    message = "hl.dot does not multiply {left} by {right}"
    expected = "float16, bfloat16, float32, int8, float8_e4m3fn or float8_e5m2"
    fix = "convert the operands first, e.g. a.to(torch.float32)"


class ReductionOnNonTile(BaseError):
    """The reduced axis is neither a tile axis nor a full slice."""

    message = "{operation}: dimension {dim} of {shape} cannot be reduced"


class InvalidReductionDim(BaseError):
    """``dim`` of a reduction is not an integer."""

    message = "{operation}: dim={dim} is not a dimension known at compile time"
    expected = "an integer, or a tuple of integers"


class ReductionDimInvalidForShape(InvalidReductionDim):
    """``dim`` of a reduction is out of range."""

    message = "{operation}: dim={dim} is out of range for a value of shape {shape}"
    expected = "dimensions counted from 0, or backwards from -1"


class MultipleReductionDims(BaseError):
    """One reduction over several axes."""

    message = "{operation} over several dimensions at once: dim={dim}"
    fix = "reduce them one after the other, e.g. v.sum(-1).sum(-1)"


class InductorLoweringError(BaseError):
    """A torch operation without device code (the class name is part of the interface)."""

    message = "{operation} cannot be compiled: {problem}"


class UnsupportedTorchFunction(InductorLoweringError, BackendUnsupported, NotImplementedError):
    """A torch function that device code does not have. ``suggestions``: near ones that it has."""

    message = "{name} is not supported in device code"
    fix = "did you mean {suggestions}?"


class UnknownLanguageFunction(BackendUnsupported, AttributeError):
    """A name that the language module does not have (yet). ``suggestions``: near ones it has."""

    message = "hl.{name} is not there"
    fix = "did you mean {suggestions}?"


class UnsupportedTorchArgument(InductorLoweringError, BackendUnsupported, NotImplementedError):
    """A supported torch function, called in a form that is not."""

    message = "{name} is not supported in device code with {argument}"


class UnsupportedSplitOperation(BaseError):
    """torch.split and its kin on device values."""

    message = "{function} is not supported on device values"
    fix = "load the parts separately, or use hl.split on a last dimension of size 2"


class UnsupportedIndexRemapping(BaseError):
    """An operation that moves elements to other positions."""

    message = "{function} moves elements between positions, which device values cannot do"
    fix = "load in the order you need, e.g. x[n - 1 - tile.index]"


class ShapeSpecializingAllocation(BaseError):
    """A runtime size as a dimension of a device value."""

    message = "`{size}` is known only at run time and cannot be a dimension of a device value"
    fix = "use a tile as the size, or fix it on the host: `{size} = hl.specialize({size})`"


class ShapeSpecializingCall(BaseError):
    """An operation that needs a size known at compile time."""

    message = "{value} must be known at compile time, but is a runtime value"
    fix = "use a tile as the size, or fix it on the host with hl.specialize"


class NotAllowedInHelperFunction(BaseError):
    """A combine function with more than pointwise operations."""

    message = "{operation} is not allowed in the combine function of {function}"
    expected = "pointwise operations on the two arguments"


class InvalidAPIUsage(BaseError):
    """A language function called in a way it does not allow."""

    message = "{function}: {problem}"


class InvalidArgumentValue(InvalidAPIUsage, ValueError):
    """An argument value out of range."""


class InvalidArgumentKind(InvalidAPIUsage, TypeError):
    """An argument of the wrong type."""


class AutodiffKernelNotCalled(BaseError):
    """Backward was asked for before the kernel ran forward."""

    message = "kernel `{function}` has not run forward yet"
    fix = "call `{function}` once before asking for its gradients"


class AutodiffNotSupported(BaseError):
    """Backward was asked for a kernel that has no automatic one."""

    message = "kernel `{function}` cannot be differentiated: {reason}"
    fix = "write the backward kernel, and join both in a torch.autograd.Function"
