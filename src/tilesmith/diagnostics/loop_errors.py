"""Mistakes with loops and branches: device loops, tiles, barriers, and values that cross them."""

from __future__ import annotations

from tilesmith.diagnostics.catalogue import BaseError, TorchOpTracingError, TypeInferenceError


class NoDeviceLoopsInKernel(BaseError):
    message = "kernel `{function}` has no device loop"
    expected = "a top-level loop such as `for tile in hl.tile(x.size(0)):`"
    fix = "put the computation in such a loop, or remove the kernel decorator"


class EmptyDeviceLoopAfterDCE(BaseError):
    message = "this device loop has no effect: nothing in it writes to a tensor"
    fix = "store the result: out[tile] = value"


class NestedGridLoop(BaseError):
    message = "a device loop stands inside a host `{statement}`"
    expected = "device loops in the kernel's own statements, branches and loops among them"
    fix = "write the loop where the `{statement}` is used, or make a kernel of it"


class TopLevelStatementBetweenLoops(BaseError):
    message = "a host statement stands between two device loops"
    note = "these loops run in one launch; host code cannot run in the middle"
    fix = "move it before the first loop or after the last, or split the kernel in two"


class LoopDependencyError(BaseError):
    message = "this device loop uses `{tensor}`, which an earlier device loop writes"
    note = "the programs of both loops run at the same time"
    fix = "put hl.barrier() between the loops, or split the kernel in two"


class DeviceLoopElseBlock(BaseError):
    message = "a device loop cannot have an `else` block"
    fix = "put the code after the loop: without `break` it always runs"


class LoopFunctionNotInFor(BaseError):
    message = "{function} is not the iterator of a `for` statement of the kernel"
    expected = "for i in {function}(...):"
    note = "helpers and comprehensions are plain Python, run once at compile time"
    fix = "write a `for` in the kernel itself; hl.static_range and lists work everywhere"


class InvalidDeviceForLoop(BaseError):
    message = "device code cannot loop over {iterable}"
    expected = "hl.tile, hl.grid, range, hl.static_range, or a list or tuple known at compile time"


class StaticLoopTooLong(TypeInferenceError):
    """A loop that unrolls without end."""

    message = "this loop did not end after {limit} unrolled turns"
    fix = "make the counter a 0-d tensor, so that the loop runs on the device: hl.zeros([])"


class StaticRangeBound(TypeInferenceError):
    message = "the bounds of hl.static_range must be known at compile time"
    fix = (
        "annotate the argument with hl.constexpr, use hl.specialize on the host, or loop by hl.grid"
    )


class InvalidTileRange(BaseError):
    message = "the range of the tile ends before it begins: [{begin}, {end})"
    fix = "swap the bounds: hl.tile(begin, end)"


class TileOfTile(BaseError):
    message = "a tile cannot be the bound of a tile loop"
    fix = "loop over its range: hl.tile(tile.begin, tile.end)"


class IncorrectTileUsage(BaseError):
    """Wrong arguments of a loop function, or a tile used as a plain value."""

    message = "{problem}"
    fix = "tile.index gives the indices as a tensor, tile.begin the first, tile.block_size the size"


class TileArithmetic(TorchOpTracingError, IncorrectTileUsage):
    message = "`{form}` has no meaning: a tile is an index or a size, not a number"
    expected = "`tile + integer`, which is all the arithmetic of tiles"
    note = ""
    fix = "use tile.index (a tensor) or tile.begin (a number)"


class InvalidBlockSize(IncorrectTileUsage):
    message = "block_size must be a power of two"
    fix = "use the next power of two: tiles past the end are masked"


class FailedToUnpackTile(BaseError):
    message = "one tile cannot be unpacked into {count} names"
    fix = "give the loop one size per name, e.g. `for t, u in hl.tile([m, n]):`"


class NestedDeviceLoopsConflict(BaseError):
    message = "block size `{block}` is already used by an enclosing loop"
    fix = "register a block size for each of the nested loops"


class InvalidJaggedTileUsage(BaseError):
    """A rule of ``hl.jagged_tile`` is broken."""

    message = "hl.jagged_tile: {problem}"
    expected = "inside a device loop over tile t: for u in hl.jagged_tile(lengths[t])"


class BarrierOnlyAllowedAtTopLevel(BaseError):
    message = "hl.barrier() does not stand between two device loops"
    expected = "hl.barrier() directly in the function body, between two device loops"


class BarrierRequiresPersistent(BaseError):
    message = 'a kernel with hl.barrier() cannot run with pid_type="{pid_type}"'
    note = "a barrier waits for all programs, so all of them must be resident at once"
    fix = 'use pid_type="persistent_blocked", or leave pid_type out'


class ControlFlowTensorMismatch(BaseError):
    message = "`{name}` changes from {before} to {after}"
    expected = "one dtype and one shape before and after each turn, and in both branches"
    fix = "convert it back, e.g. `{name} = (...).to(dtype)`, or start with the dtype it ends with"


class CantCombineTypesInControlFlow(BaseError):
    message = "`{name}` is {before} on one path and {after} on the other"
    expected = "one kind of value on both paths: which path is taken is known only at run time"


class NumberChangedInControlFlow(CantCombineTypesInControlFlow):
    message = "the Python number `{name}` is {before}, and {after} after a runtime loop or `if`"
    expected = "one kind of number on all paths: bool, integer or float"
    fix = "start with a number of the kind it becomes, e.g. `{name} = 0.0` for a float"


class MultiElementCondition(TypeInferenceError):
    message = "a condition must be one value, not {shape}"
    fix = "reduce it, e.g. `condition.any()`, or choose per element: torch.where(condition, a, b)"


class LogicalOperatorOnTensor(TypeInferenceError):
    message = "`{operator}` does not work element by element; the operand has shape {shape}"
    fix = "use & for `and`, | for `or`, ~ for `not`, with parentheses around comparisons"
