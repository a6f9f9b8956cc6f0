"""Rejects, with its place and before anything is traced, what a kernel cannot contain.

Python that device code does not have, decorators that would never run, and helpers that write to
names outside themselves although they run once, at compile time.
"""

from __future__ import annotations

import ast
import dis
from types import CodeType, FunctionType
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.frontend.source import kernel_source, names

_NOT_ALLOWED = {
    ast.Return: "`return`", ast.With: "`with`", ast.Try: "`try`", ast.AsyncWith: "`async with`",
}  # fmt: skip
_NOT_SUPPORTED = {
    ast.FunctionDef: "a nested `def`", ast.ClassDef: "a nested `class`", ast.Raise: "`raise`",
    ast.Global: "`global`", ast.Nonlocal: "`nonlocal`", ast.Delete: "`del`", ast.Import: "`import`",
    ast.ImportFrom: "`import`", ast.AsyncFor: "`async for`", ast.AsyncFunctionDef: "`async def`",
    ast.Yield: "`yield`", ast.YieldFrom: "`yield from`", ast.Await: "`await`",
    ast.NamedExpr: "`:=`",
}  # fmt: skip

_STORING = {dis.opmap["STORE_GLOBAL"], dis.opmap["STORE_DEREF"]}


def check_device_code(source: kernel_source.KernelSource) -> None:
    """Raise for what device code cannot contain, and for names that cross the border."""
    for loop in source.loops:
        for node in ast.walk(loop):
            _check_node(node, source)
        _check_breaks(loop, source)
    _check_places_of_calls(source)
    _check_globals(source)
    _check_rebinding(source)
    _check_host_reads(source)


def _check_node(node: ast.AST, source: kernel_source.KernelSource) -> None:
    kind = type(node)
    if kind in _NOT_ALLOWED:
        raise errors.NotAllowedOnDevice(statement=_NOT_ALLOWED[kind], loc=source.location(node))
    if kind in _NOT_SUPPORTED:
        raise errors.StatementNotSupported(
            statement=_NOT_SUPPORTED[kind], loc=source.location(node)
        )
    if isinstance(node, ast.While) and node.orelse:
        raise errors.StatementNotSupported(
            statement="`while ... else`", loc=source.location(node.orelse[0])
        )
    if isinstance(node, ast.For) and node.orelse:
        raise errors.DeviceLoopElseBlock(loc=source.location(node.orelse[0]))
    if isinstance(node, ast.Assign):
        _check_targets(node, source)


def _check_breaks(loop: ast.stmt, source: kernel_source.KernelSource) -> None:
    """A loop whose turns run at the same time has no last one to stop after."""
    for node in names.own_nodes(ast.iter_child_nodes(loop), names.LOOPS):
        if isinstance(node, ast.Break):
            raise errors.UnsupportedPythonType(
                construct="`break` out of the outermost loop",
                fix="use `continue` to skip a tile: the tiles of this loop run at the same time",
                loc=source.location(node),
            )


def _check_targets(node: ast.Assign, source: kernel_source.KernelSource) -> None:
    loc = source.location(node)
    if len(node.targets) > 1:
        targets = " = ".join(ast.unparse(target) for target in node.targets)
        raise errors.AssignmentMultipleTargets(targets=targets, loc=loc)
    (target,) = node.targets
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    for part in parts:
        is_list_of_rest = isinstance(part, ast.Starred) and isinstance(part.value, ast.Name)
        if not is_list_of_rest and not isinstance(part, (ast.Name, ast.Subscript)):
            raise errors.InvalidAssignment(target=ast.unparse(part), loc=source.location(part))


def _check_places_of_calls(source: kernel_source.KernelSource) -> None:
    """``hl.tile`` and its kin mean something only after ``for ... in``, barriers between loops."""
    nodes = list(ast.walk(source.tree))
    loops = (node for node in nodes if isinstance(node, (ast.For, ast.comprehension)))
    iterators = {id(kernel_source.without_reversed(node.iter)) for node in loops}
    between = {id(s.value) for s in source.loops if isinstance(s, ast.Expr)}
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    for node in (call for call in calls if id(call) not in iterators):
        if kernel_source.is_language_call(node, kernel_source.LOOP_FUNCTIONS, source.function):
            raise errors.LoopFunctionNotInFor(
                function=ast.unparse(node.func), loc=source.location(node)
            )
    for node in (call for call in calls if id(call) not in between):
        if kernel_source.is_barrier(node, source.function):
            raise errors.BarrierOnlyAllowedAtTopLevel(loc=source.location(node))


def _check_globals(source: kernel_source.KernelSource) -> None:
    declared = names.declared_globals([source.tree])
    for name, place in source.loop_names.bound.items():
        if name in declared:
            raise errors.GlobalMutation(name=name, loc=source.location(place))


def _host_names(source: kernel_source.KernelSource) -> dict[str, ast.AST]:
    arguments = dict.fromkeys(names.parameter_names(source.tree), source.tree)
    return {**arguments, **source.names_before.bound}


def _check_rebinding(source: kernel_source.KernelSource) -> None:
    host = _host_names(source)
    used = {*source.loop_names.read, *source.names_after.read}
    for name, place in source.loop_names.bound.items():
        # `_` is for what is not wanted, on either side.
        if name in host and (name != "_" or name in used):
            raise errors.CannotModifyHostVariableOnDevice(name=name, loc=source.location(place))


def _check_host_reads(source: kernel_source.KernelSource) -> None:
    host = _host_names(source) | source.names_after.bound
    device = source.loop_names.bound
    for name, place in source.names_after.read.items():
        if name in device and name not in host:
            raise errors.CannotReadDeviceVariableOnHost(name=name, loc=source.location(place))


def check_decorators(source: kernel_source.KernelSource) -> None:
    """Raise if anything stands below the kernel decorator."""
    decorators = source.tree.decorator_list
    ours = [_is_kernel_decorator(node, source.function.__globals__) for node in decorators]
    if not any(ours) or ours[-1]:
        return
    below = decorators[ours.index(True) + 1]
    raise errors.DecoratorAfterHelionKernelDecorator(
        decorator=ast.unparse(below), function=source.tree.name, loc=source.location(below)
    )


def _is_kernel_decorator(node: ast.expr, module: dict[str, Any]) -> bool:
    target = node.func if isinstance(node, ast.Call) else node
    found = _resolve(target, module)
    return str(getattr(found, "__module__", "")).startswith("tilesmith.")


def _resolve(node: ast.expr, module: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return module.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_resolve(node.value, module), node.attr, None)
    return None


def check_named_helpers(source: kernel_source.KernelSource) -> None:
    """Check the functions that device code names and those they name in turn."""
    module = source.function.__globals__
    checked: set[CodeType] = set()
    for name in source.loop_names.read:
        check_helper(module.get(name), checked)


def check_helper(helper: Any, checked: set[CodeType] | None = None) -> None:
    """Raise if a function, or one that it names, rebinds a name outside itself."""
    checked = set() if checked is None else checked
    if (
        not isinstance(helper, FunctionType)
        or helper.__code__ in checked
        or names.is_library(helper)
    ):
        return
    checked.add(helper.__code__)
    for code in names.nested_codes(helper.__code__):
        _check_stores(code, helper.__code__)
        for name in code.co_names:
            check_helper(helper.__globals__.get(name), checked)


def _check_stores(code: CodeType, helper: CodeType) -> None:
    # Few codes have such instructions, and a look at their bytes is cheap.
    if _STORING.isdisjoint(code.co_code[::2]):
        return
    line = code.co_firstlineno
    starts = dict(dis.findlinestarts(code))
    for instruction in dis.get_instructions(code):
        line = starts.get(instruction.offset) or line
        loc = SourceLocation(code.co_filename, line, code.co_name)
        if instruction.opname == "STORE_GLOBAL":
            raise errors.GlobalMutation(name=instruction.argval, loc=loc)
        # Cells of the helper's own locals are its business.
        if instruction.opname == "STORE_DEREF" and instruction.argval in helper.co_freevars:
            raise errors.ClosureMutation(name=instruction.argval, loc=loc)
