"""Mistakes with device values and memory: shapes, reductions, dots, subscripts, stores, races."""

from __future__ import annotations

from tilesmith.diagnostics.catalogue import BackendUnsupported, BaseError, TypeInferenceError


class ShapeMismatch(BaseError):
    """Shapes that do not broadcast. ``operation`` names what was asked, e.g. "torch.add"."""

    message = "shapes {left} and {right} do not match"
    found = "operands of {operation}"
    note = "two axes are the same only if they come from the same tile or have the same size"
    fix = "align them with [:, None] or keepdim=True"


class DotShapeMismatch(ShapeMismatch, ValueError):
    message = "cannot multiply a matrix {left} by {right}"
    expected = "[m, k] times [k, n], with k the same axis"
    note = ""
    fix = "index both operands with the same tile along k; transpose one with .T if needed"


class DotBatchDimensionMismatch(BaseError):
    message = "batch dimensions of the product differ: {left} and {right}"
    expected = "the same batch axis in both operands, or size 1 in one"


class UnsupportedDotDtype(BaseError, TypeError):
    message = "hl.dot does not multiply {left} by {right}"
    expected = "float16, bfloat16, float32, int8, float8_e4m3fn or float8_e5m2"
    fix = "convert the operands first, e.g. a.to(torch.float32)"


class ReductionOnNonTile(BaseError):
    """The reduced axis is neither a tile axis nor a full slice."""

    message = "{operation}: dimension {dim} of {shape} cannot be reduced"


class InvalidReductionDim(BaseError):
    message = "{operation}: dim={dim} is not a dimension known at compile time"
    expected = "an integer, or a tuple of integers"


class ReductionDimInvalidForShape(InvalidReductionDim):
    message = "{operation}: dim={dim} is out of range for a value of shape {shape}"
    expected = "dimensions counted from 0, or backwards from -1"


class EmptyReduction(InvalidReductionDim, IndexError):
    message = "{operation} of no elements: dimension {dim} of a value of shape {shape} is empty"
    expected = "a dimension with elements, as torch demands of {operation}"
    fix = "return from host code before the loop where the size is 0"


class MultipleReductionDims(BaseError):
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
    message = "{name} is not supported in device code with {argument}"


class UnsupportedSplitOperation(BaseError):
    message = "{function} is not supported on device values"
    fix = "load the parts separately, or use hl.split on a last dimension of size 2"


class UnsupportedIndexRemapping(BaseError):
    message = "{function} moves elements between positions, which device values cannot do"
    fix = "load in the order you need, e.g. x[n - 1 - tile.index]"


class ShapeSpecializingAllocation(BaseError):
    message = "`{size}` is known only at run time and cannot be a dimension of a device value"
    fix = "use a tile as the size, or fix it on the host: `{size} = hl.specialize({size})`"


class ShapeSpecializingCall(BaseError):
    message = "{value} must be known at compile time, but is a runtime value"
    fix = "use a tile as the size, or fix it on the host with hl.specialize"


class NotAllowedInHelperFunction(BaseError):
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
    message = "kernel `{function}` has not run forward yet"
    fix = "call `{function}` once before asking for its gradients"


class AutodiffNotSupported(BaseError):
    message = "kernel `{function}` cannot be differentiated: {reason}"
    fix = "write the backward kernel, and join both in a torch.autograd.Function"


class RankMismatch(TypeInferenceError):
    message = "too many indices for tensor of dimension {rank}: `{tensor}` gets {given}"
    fix = "give one index per dimension; `:` takes a whole dimension, None adds one"


class StoredRankMismatch(RankMismatch):
    message = "a value of rank {given} is stored into `{tensor}` at an index of rank {rank}"
    fix = "add dimensions with value[:, None], or reduce the value first"


class InvalidIndexingType(BaseError):
    message = "`{tensor}` cannot be indexed by {kind}"
    expected = "a tile, an integer, an integer tensor, a slice, None or ..."


class OverpackedTile(BaseError):
    message = "a tuple of tiles is used as one index of several"
    fix = "unpack it in the loop: `for t, u in hl.tile([m, n]):`, then x[t, u, 0]"


class DataDependentOutputShapeNotSupported(BaseError):
    message = "the result shape of {operation} depends on the data"
    fix = (
        "keep all elements and mask: torch.where(mask, value, 0), or hl.load(x, index, extra_mask)"
    )


class InvalidSliceStep(BaseError):
    message = "slice step {step} is not positive"
    fix = "index with a computed position instead, e.g. x[n - 1 - tile.index]"


class TensorSliceBound(BaseError):
    message = "the bounds of the slice are runtime values, so its length is unknown"
    expected = "bounds known at compile time, or a length of one block: x[s : s + t.block_size]"
    fix = "loop over the range: for t in hl.tile(begin, end)"


class NonTensorSubscriptAssign(BaseError):
    message = "`{target}` is {kind}: only elements of tensors can be assigned in device code"


class RequiresTensorInAssignment(BaseError):
    message = "{kind} cannot be stored into `{tensor}`"
    expected = "a tensor, a number or a bool"


class AtomicOnDeviceTensor(BaseError):
    message = "{function} needs a tensor in memory; `{target}` is a device value"
    fix = "allocate a tensor on the host, before the device loop, and pass that"


class IndexOffsetOutOfRangeForInt32(BaseError):
    message = "elements of `{tensor}` lie at offsets up to {offset}, past the range of int32"
    fix = "leave index_dtype unset, or set index_dtype=torch.int64"


class InputTensorNumelExceedsIndexType(BaseError):
    message = "`{tensor}` is too large for index_dtype={index_dtype}"
    fix = "leave index_dtype unset, or set index_dtype=torch.int64"


class StackTensorcOnHost(BaseError):
    """``hl.stacktensor_like`` in host code (the spelling is part of the interface)."""

    message = "hl.stacktensor_like works in device code only"
    fix = "load the pointers with a tile, then call it: hl.stacktensor_like(example, ptrs[tile])"


class StackTensorDevPtrOnHost(BaseError):
    message = "the pointers given to hl.stacktensor_like are the host tensor `{tensor}`"
    fix = "load them with a tile: {tensor}[tile]"


class StackTensorDevPtrDtype(BaseError):
    message = "the pointers given to hl.stacktensor_like have dtype {dtype}"
    expected = "torch.uint64"


class StackTensorExampleOnDevice(BaseError):
    message = "the example given to hl.stacktensor_like is a device value"
    expected = "a host tensor, whose dtype, shape and strides the stacked tensors share"


class IndexOutOfRange(BaseError):
    message = "index {index} is out of bounds for dimension {dim} of `{tensor}`, of size {size}"
    expected = "an index from 0, or backwards from -1"


class OutOfBoundsAccess(IndexOutOfRange):
    """The interpreter saw an index outside the tensor."""

    expected = ""
    note = "the tile's mask follows the loop's range, not the size of `{tensor}`"
    fix = "loop over the smaller size, or pass extra_mask to hl.load / hl.store"


class TileOutOfRange(OutOfBoundsAccess):
    message = "tiles up to {end} run past the end of dimension {dim} of `{tensor}`, of size {size}"
    fix = (
        "check the order of the indices; else loop over the smaller size, or pass extra_mask to "
        "hl.load / hl.store"
    )


class DeviceAssertionFailed(BaseError, AssertionError):
    """The interpreter saw an ``assert`` of device code fail."""

    message = "assertion failed: {condition}"
    found = "a condition that is false in the program at {program}"


class RaceDetected(BaseError):
    """The interpreter saw two programs use one element with no order between them."""

    message = "race on `{tensor}` at index {index}: {conflict}"
    note = "programs of a device loop run in any order and at the same time"
    fix = (
        "use hl.atomic_add or another atomic, make each program write its own part, or hl.barrier()"
    )


class ProgramsWaitForever(BaseError):
    message = "programs wait for each other for ever: {reason}"
    note = "programs begin in any order, and only some of them are there at the same time"
    fix = "wait only for what programs do that need not wait themselves, or use hl.barrier()"


class DuplicateStoreIndicesError(BaseError):
    message = "one store into `{tensor}` writes index {index} more than once"
    note = "which of the values stays is not defined"
    fix = "use hl.atomic_add or another atomic, or mask the duplicates with extra_mask"
