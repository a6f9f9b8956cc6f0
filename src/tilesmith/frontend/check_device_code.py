"""Rejects, with its place, Python that device code cannot contain, before anything is traced."""

from __future__ import annotations

import ast
from typing import NoReturn

from tilesmith.diagnostics import errors
from tilesmith.frontend.names import bound_names, read_names
from tilesmith.frontend.source import LOOP_FUNCTIONS, KernelSource, is_barrier, is_language_call

_NOT_ALLOWED = {
    ast.Return: "`return`", ast.With: "`with`", ast.Try: "`try`", ast.AsyncWith: "`async with`",
}  # fmt: skip
_NOT_SUPPORTED = {
    ast.FunctionDef: "a nested `def`", ast.ClassDef: "a nested `class`", ast.Raise: "`raise`",
    ast.Global: "`global`", ast.Nonlocal: "`nonlocal`", ast.Delete: "`del`", ast.Import: "`import`",
    ast.ImportFrom: "`import`", ast.AsyncFor: "`async for`", ast.AsyncFunctionDef: "`async def`",
    ast.Yield: "`yield`", ast.YieldFrom: "`yield from`", ast.Await: "`await`", ast.Match: "`match`",
    ast.NamedExpr: "`:=`",
}  # fmt: skip
_NO_DEVICE_FORM = {ast.Break: "`break`", ast.Continue: "`continue`"}


def check_device_code(source: KernelSource) -> None:
    """Raise for what device code cannot contain, and for names that cross the border."""
    for loop in source.loops:
        for node in ast.walk(loop):
            _check_node(node, source)
    _check_loop_functions(source)
    _check_barriers(source)
    _check_globals(source)
    _check_rebinding(source)
    _check_host_reads(source)


def _check_node(node: ast.AST, source: KernelSource) -> None:
    kind = type(node)
    if kind in _NOT_ALLOWED:
        raise errors.NotAllowedOnDevice(statement=_NOT_ALLOWED[kind], loc=source.location(node))
    if kind in _NOT_SUPPORTED:
        raise errors.StatementNotSupported(
            statement=_NOT_SUPPORTED[kind], loc=source.location(node)
        )
    if kind in _NO_DEVICE_FORM:
        raise errors.UnsupportedPythonType(
            construct=_NO_DEVICE_FORM[kind], loc=source.location(node)
        )
    if isinstance(node, ast.While) and node.orelse:
        raise errors.StatementNotSupported(
            statement="`while ... else`", loc=source.location(node.orelse[0])
        )
    if isinstance(node, ast.For) and node.orelse:
        raise errors.DeviceLoopElseBlock(loc=source.location(node.orelse[0]))
    if isinstance(node, ast.Assign):
        _check_targets(node, source)


def _check_targets(node: ast.Assign, source: KernelSource) -> None:
    loc = source.location(node)
    if len(node.targets) > 1:
        targets = " = ".join(ast.unparse(target) for target in node.targets)
        raise errors.AssignmentMultipleTargets(targets=targets, loc=loc)
    (target,) = node.targets
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    for part in parts:
        if isinstance(part, ast.Starred):
            raise errors.StarredArgsNotSupportedOnDevice(starred=ast.unparse(part), loc=loc)
        if not isinstance(part, (ast.Name, ast.Subscript)):
            _invalid_assignment(part, source)


def _invalid_assignment(part: ast.AST, source: KernelSource) -> NoReturn:
    raise errors.InvalidAssignment(target=ast.unparse(part), loc=source.location(part))


def _check_loop_functions(source: KernelSource) -> None:
    """``hl.tile`` and its kin mean something only after ``for ... in``."""
    nodes = list(ast.walk(source.tree))
    iterators = {id(node.iter) for node in nodes if isinstance(node, (ast.For, ast.comprehension))}
    for node in nodes:
        if id(node) in iterators or not isinstance(node, ast.Call):
            continue
        if is_language_call(node, LOOP_FUNCTIONS, source.function):
            raise errors.LoopFunctionNotInFor(
                function=ast.unparse(node.func), loc=source.location(node)
            )


def _check_barriers(source: KernelSource) -> None:
    between = {id(s.value) for s in source.loops if isinstance(s, ast.Expr)}
    for node in ast.walk(source.tree):
        if is_barrier(node, source.function) and id(node) not in between:
            raise errors.BarrierOnlyAllowedAtTopLevel(loc=source.location(node))


def _check_globals(source: KernelSource) -> None:
    declared = {
        name
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Global)
        for name in node.names
    }
    for name, place in bound_names(source.loops).items():
        if name in declared:
            raise errors.GlobalMutation(name=name, loc=source.location(place))


def _host_names(source: KernelSource) -> dict[str, ast.AST]:
    arguments = {arg.arg: arg for arg in source.tree.args.args}
    return {**arguments, **bound_names(source.before)}


def _check_rebinding(source: KernelSource) -> None:
    host = _host_names(source)
    used = read_names([*source.loops, *source.after])
    for name, place in bound_names(source.loops).items():
        # `_` is for what is not wanted, on either side.
        if name in host and (name != "_" or name in used):
            raise errors.CannotModifyHostVariableOnDevice(name=name, loc=source.location(place))


def _check_host_reads(source: KernelSource) -> None:
    host = _host_names(source) | bound_names(source.after)
    device = bound_names(source.loops)
    for name, place in read_names(source.after).items():
        if name in device and name not in host:
            raise errors.CannotReadDeviceVariableOnHost(name=name, loc=source.location(place))
