"""Mistakes in the code of a kernel: statements, names, changed objects, loops, branches, tiles."""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.diagnostics.catalogue import BaseError, TorchOpTracingError, TypeInferenceError

STATEMENT_FIXES: Mapping[str, str] = {
    "return": "store the result into a tensor, and return it after the device loop",
    "with": "enter the context around the call of the kernel",
    "try": "check for the exceptional case with `if`; device code raises nothing",
    "raise": "check on the host, before the device loop; device code raises nothing",
    "del": "leave it out: device values need no freeing",
    "import": "import at the top of the module",
    "global": "pass the value as an argument, and return what changes",
    "nonlocal": "pass the value as an argument, and return what changes",
    "lambda": "define the function at module level, or pass it to the kernel as an argument",
    "a nested def": "define it at module level",
    "a nested class": "define it at module level",
    "yield": "store the results into a tensor, and return it",
    "yield from": "store the results into a tensor, and return it",
    "async def": "define an ordinary function at module level",
    "async for": "use an ordinary `for`",
    "async with": "enter the context around the call of the kernel",
    "await": "await the value before the kernel is called",
    ":=": "assign in a statement of its own",
    "a conditional expression": "use torch.where(condition, a, b) for tensors, if/else otherwise",
    "a comprehension with if": "filter the list before the device loop",
    "while ... else": "put the code of the else block after the loop",
    "a set": "use a list or tuple",
    ".item()": "use the loaded 0-d value itself: `v = x[i]`",
}
"""What to write instead, by the construct as the frontend names it, less its quotes."""


class NotAllowedOnDevice(BaseError):
    message = "{statement} is not allowed in device code"
    fix = "move it out of the device loop"
    fixes = STATEMENT_FIXES


class HostAPIOnDevice(NotAllowedOnDevice):
    message = "{function} works on the host only"
    fix = "call it before the device loop"


class SpecializeOnDevice(HostAPIOnDevice):
    message = "hl.specialize works on the host only"


class RegisterOnDevice(HostAPIOnDevice):
    """``hl.register_block_size`` or ``hl.register_tunable`` in device code."""


class StatementNotSupported(BaseError):
    message = "{statement} is not supported in device code"
    fix = "move it to an ordinary function called before or after the kernel"
    fixes = STATEMENT_FIXES


class UnsupportedPythonType(BaseError):
    message = "{construct} cannot be used in device code"
    fix = "do this in an ordinary function, and pass the result as an argument"
    fixes = STATEMENT_FIXES


class AssignmentMultipleTargets(NotAllowedOnDevice):
    message = "chained assignment `{targets}` is not allowed in device code"
    fix = "write one assignment per line"
    fixes: Mapping[str, str] = {}


class InvalidAssignment(NotAllowedOnDevice):
    message = "cannot assign to `{target}` in device code"
    expected = "a name, a subscript of a host tensor, or a flat tuple of these"
    fix = "unpack in several statements"
    fixes: Mapping[str, str] = {}


class StarredArgsNotSupportedOnDevice(InvalidAssignment):
    message = "`{starred}` is not supported in device code"
    expected = ""
    fix = "write the elements out one by one"


class DeviceTensorSubscriptAssignmentNotAllowed(BaseError):
    message = "`{name}` is a device value: its elements cannot be assigned"
    expected = "a store into a host tensor, e.g. out[tile] = value"
    fix = "make a new value: `{name} = torch.where(condition, new, {name})`"


class UndefinedVariable(BaseError):
    """A name without a value. ``reason``: why; ``suggestions``: names like it that have one."""

    message = "`{name}` is not defined"
    note = "{reason}"
    fix = "did you mean {suggestions}?"


class UsedBeforeAssignment(UndefinedVariable):
    message = "`{name}` is used before it has a value"
    note = ""
    fix = "start it before the loop, e.g. `{name} = hl.zeros([tile], dtype=torch.float32)`"


class UnboundAfterLoop(UndefinedVariable):
    message = "`{name}` is first bound inside the loop and does not outlive it"
    note = "the loop may run zero times, and then `{name}` would have no value"
    fix = "give `{name}` a value before the loop, e.g. with hl.zeros or hl.full"


class TileOutsideItsLoop(UnboundAfterLoop):
    message = "`{name}` is the variable of a loop that has ended, or has not begun"
    note = ""
    fix = "use `{name}` inside its loop, and store there"


class CrossRootDeviceValue(BaseError):
    message = "`{name}` has no value here: the loop or branch that made it has ended"
    found = "made in the loop or branch at {place}"
    fix = "give `{name}` a value before that loop or branch; between top-level loops, use a tensor"


class UnboundInBranch(CrossRootDeviceValue):
    message = "`{name}` has a value in only one branch of the `if`"
    found = ""
    note = "the condition is known only at run time, so `{name}` may have no value here"
    fix = "give `{name}` a value before the `if`, or in both branches"


class CannotModifyHostVariableOnDevice(BaseError):
    message = "host variable `{name}` cannot be rebound in device code"
    note = "many programs run the loop body at once; there is one `{name}` on the host"
    fix = "use another name in the loop; to change a tensor's elements write `{name}[tile] = ...`"


class CannotReadDeviceVariableOnHost(BaseError):
    message = "`{name}` is a device variable and cannot be read on the host"
    note = "each program of the device loop has its own `{name}`, gone when the loop ends"
    fix = "allocate a tensor before the loop, store `{name}` into it, and read that"


class CantReadOnDevice(BaseError):
    message = "`{name}` is {kind}, which device code cannot use"
    fix = "take what you need from it on the host: a number, a tensor, a string, a dtype"


class HostTensorDirectUsage(BaseError):
    message = "host tensor `{name}` is used as a value in device code"
    expected = "a load of some of its elements, e.g. {name}[tile]"
    found = "use in {use}"
    fix = "index it with tiles; `{name}[:]` loads all of it, `{name}[()]` a 0-d tensor"


class CapturedTensorUsage(HostTensorDirectUsage):
    """A tensor that is no variable of the kernel, such as a parameter of a module."""

    message = "{operation} is given a tensor that is no variable of the kernel"
    expected = "tensors that are arguments, globals or made by host code, indexed with tiles"
    found = ""
    fix = "pass it as an argument of the kernel, e.g. layer.weight, and index it there"


class HostTensorAsCondition(HostTensorDirectUsage):
    message = "host tensor `{name}` is used as a condition in device code"
    expected = ""
    found = ""
    fix = "write `{name} is not None`, or test a loaded element: `if {name}[i] > 0:`"


class ClosureMutation(BaseError):
    message = "`{name}` of an enclosing function is rebound while the kernel is compiled"
    note = "helpers run once, at compile time: the change would not happen on each call"
    fix = "return the new value from the helper"


class GlobalMutation(BaseError):
    message = "global `{name}` is written in a kernel"
    note = "device code is run once, at compile time: the change would not happen on each call"
    fix = "store into a tensor argument, or return the value"


class CapturedListMutation(NotAllowedOnDevice):
    message = "`{name}` was made outside the device loop and is changed inside it"
    note = "device code is run once, at compile time: the change would not happen on each call"
    fix = "make the list inside the device loop, or store into a tensor"
    fixes: Mapping[str, str] = {}


class InvalidSequenceSubscription(BaseError):
    message = "`{sequence}` cannot be indexed by {index}"
    expected = "a position known at compile time: an integer, hl.constexpr, or hl.static_range"
    fix = "loop over the elements, or stack them into one tensor on the host"


class FailedToUnpackTupleAssign(BaseError):
    message = "cannot unpack {given} values into {needed} names"
    fix = "give one name for each value"


class TracedArgNotSupported(BaseError):
    message = "{function} does not take {kind} as `{argument}`"


class RecursiveHelper(TorchOpTracingError):
    message = "helper `{function}` calls itself without end while the kernel is traced"
    note = "helpers run at compile time: a recursion must end on a value known then"
    fix = "use a loop, or a recursion depth that is a constant"


class DataDependentCondition(TorchOpTracingError):
    message = "a device value is used as a Python condition"
    note = "helpers and expressions are run once, at compile time, when the value is not known"
    fix = "use torch.where(condition, a, b), or an `if` statement in the kernel itself"


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
    fix = "write a `for` in the kernel itself (tile.id counts tiles); lists work everywhere"


class InvalidDeviceForLoop(BaseError):
    message = "device code cannot loop over {iterable}"
    expected = "hl.tile, hl.grid, range, hl.static_range, or a list or tuple known at compile time"
    fix = "combine elements by torch, v.sum(); or loop over positions, for i in range(n): x[i]"


class StaticLoopTooLong(TypeInferenceError):
    message = "this loop did not end after {limit} unrolled turns"
    fix = "make the counter a 0-d tensor, so that the loop runs on the device: hl.zeros([])"


class StaticRangeBound(TypeInferenceError):
    message = "the bounds of hl.static_range must be known at compile time"
    fix = (
        "annotate the argument with hl.constexpr, use hl.specialize on the host, or loop by hl.grid"
    )


class InvalidTileRange(BaseError):
    message = "the range of the tile ends before it begins: [{begin}, {end})"
    fix = "swap the bounds: hl.tile(begin, end); for two axes give a list: hl.tile([m, n])"


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
    fix = "start `{name}` as what it becomes, e.g. with hl.zeros or hl.full"


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
