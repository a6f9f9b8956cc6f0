"""Mistakes in reading and writing memory: subscripts, stores, atomics, index width, races."""

from __future__ import annotations

from tilesmith.diagnostics.catalogue import BaseError


class RankMismatch(BaseError):
    """A tensor is indexed with the wrong number of indices."""

    message = "`{tensor}` has rank {rank}, but {given} indices are given"
    fix = "give one index per dimension; `:` takes a whole dimension, None adds one"


class StoredRankMismatch(RankMismatch):
    """The rank of a stored value is not that of the place."""

    message = "a value of rank {given} is stored into `{tensor}` at an index of rank {rank}"
    fix = "add dimensions with value[:, None], or reduce the value first"


class InvalidIndexingType(BaseError):
    """An index element of an unsupported type."""

    message = "`{tensor}` cannot be indexed by {kind}"
    expected = "a tile, an integer, an integer tensor, a slice, None or ..."


class OverpackedTile(BaseError):
    """A tuple of tiles in one index position."""

    message = "a tuple of tiles is used as one index of several"
    fix = "unpack it in the loop: `for t, u in hl.tile([m, n]):`, then x[t, u, 0]"


class DataDependentOutputShapeNotSupported(BaseError):
    """An operation whose result shape depends on the data."""

    message = "the result shape of {operation} depends on the data"
    fix = (
        "keep all elements and mask: torch.where(mask, value, 0), or hl.load(x, index, extra_mask)"
    )


class InvalidSliceStep(BaseError):
    """A slice step of zero or less."""

    message = "slice step {step} is not positive"
    fix = "index with a computed position instead, e.g. x[n - 1 - tile.index]"


class TensorSliceBound(BaseError):
    """A tensor as a slice bound."""

    message = "the bounds of the slice are runtime values, so its length is unknown"
    expected = "bounds known at compile time, or a length of one block: x[s : s + t.block_size]"
    fix = "loop over the range: for t in hl.tile(begin, end)"


class NonTensorSubscriptAssign(BaseError):
    """A subscript store whose target is not a tensor."""

    message = "`{target}` is {kind}: only elements of tensors can be assigned in device code"


class RequiresTensorInAssignment(BaseError):
    """A stored value that is no tensor and no number."""

    message = "{kind} cannot be stored into `{tensor}`"
    expected = "a tensor, a number or a bool"


class AtomicOnDeviceTensor(BaseError):
    """The target of an atomic is a device value."""

    message = "{function} needs a tensor in memory; `{target}` is a device value"
    fix = "allocate a tensor on the host, before the device loop, and pass that"


class IndexOffsetOutOfRangeForInt32(BaseError):
    """The largest offset into a tensor does not fit int32."""

    message = "elements of `{tensor}` lie at offsets up to {offset}, past the range of int32"
    fix = "leave index_dtype unset, or set index_dtype=torch.int64"


class InputTensorNumelExceedsIndexType(BaseError):
    """A tensor too large for the index dtype asked for."""

    message = "`{tensor}` is too large for index_dtype={index_dtype}"
    fix = "leave index_dtype unset, or set index_dtype=torch.int64"


class StackTensorcOnHost(BaseError):
    """``hl.stacktensor_like`` in host code (the spelling is part of the interface)."""

    message = "hl.stacktensor_like works in device code only"
    fix = "load the pointers with a tile, then call it: hl.stacktensor_like(example, ptrs[tile])"


class StackTensorDevPtrOnHost(BaseError):
    """The pointers of a stack tensor were not loaded."""

    message = "the pointers given to hl.stacktensor_like are the host tensor `{tensor}`"
    fix = "load them with a tile: {tensor}[tile]"


class StackTensorDevPtrDtype(BaseError):
    """The pointers of a stack tensor have another dtype than uint64."""

    message = "the pointers given to hl.stacktensor_like have dtype {dtype}"
    expected = "torch.uint64"


class StackTensorExampleOnDevice(BaseError):
    """The example of a stack tensor is a device value."""

    message = "the example given to hl.stacktensor_like is a device value"
    expected = "a host tensor, whose dtype, shape and strides the stacked tensors share"


class IndexOutOfRange(BaseError):
    """A constant index outside the tensor."""

    message = "index {index} is out of bounds for dimension {dim} of `{tensor}`, of size {size}"
    expected = "an index from 0, or backwards from -1"


class OutOfBoundsAccess(IndexOutOfRange):
    """The interpreter saw an index outside the tensor."""

    expected = ""
    note = "the tile's mask follows the loop's range, not the size of `{tensor}`"
    fix = "loop over the smaller size, or pass extra_mask to hl.load / hl.store"


class RaceDetected(BaseError):
    """The interpreter saw two programs use one element with no order between them."""

    message = "race on `{tensor}` at index {index}: {conflict}"
    note = "programs of a device loop run in any order and at the same time"
    fix = (
        "use hl.atomic_add or another atomic, make each program write its own part, or hl.barrier()"
    )


class DuplicateStoreIndicesError(BaseError):
    """One store writes one element twice."""

    message = "one store into `{tensor}` writes index {index} more than once"
    note = "which of the values stays is not defined"
    fix = "use hl.atomic_add or another atomic, or mask the duplicates with extra_mask"
