"""The two functions made from a kernel's source: host code with one launch point, and device code.

Both are compiled under the user's file name and line numbers, so tracebacks and locations show the
user's code. Factory calls of host code that name no device get the kernel's, written into the code,
so that a call costs nothing more and nothing around it changes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, cast

import torch
from typing_extensions import override

from tilesmith.frontend.source import functionalise, names
from tilesmith.frontend.source.kernel_source import KernelSource
from tilesmith.frontend.source.rewriting.jumps import without_jumps
from tilesmith.frontend.source.rewriting.patterns import without_match
from tilesmith.frontend.source.rewriting.quiet_host import find_effects, leave_out

LAUNCH = "__launch"
_DATA = (int, float, str, torch.Tensor, list, tuple, dict)
"""Globals of these kinds may change between calls: host code hands them over at each launch."""


@dataclass(frozen=True)
class SplitKernel:
    """Compiled host and device code of a kernel, independent of any arguments."""

    source: KernelSource
    captured: tuple[str, ...]
    """Host names and data of the module that device code reads, in the order both functions use."""
    host_code: CodeType
    device_code: CodeType
    quiet_codes: dict[frozenset[str], CodeType | None] = field(
        default_factory=dict[frozenset[str], "CodeType | None"], compare=False
    )
    """Host code without effects by plain parameters, as far as made; None: it has none."""
    recorded_codes: dict[frozenset[str] | None, CodeType | None] = field(
        default_factory=dict["frozenset[str] | None", "CodeType | None"], compare=False
    )
    """The same whose calls the launch makes (``host_calls``)."""

    @property
    def keyed(self) -> frozenset[str]:
        """Parameters that host code never rebinds: the specialization key covers their values."""
        parameters = set(names.parameter_names(self.source.tree))
        return frozenset(parameters - self.source.names_before.bound.keys())

    def host_function(self) -> FunctionType:
        """Host code as ``f(launch, *arguments)``.

        ``launch`` receives the captured values at the launch point; its attribute ``device`` is
        where host code makes tensors.

        It runs over the user's own module globals, so later changes to them are seen.
        """
        return make_function(self.host_code, self.source, self.source.function.__globals__)

    def quiet_host_function(self, plain: frozenset[str]) -> FunctionType | None:
        """Host code up to the launch point, only as far as a trace needs it; None if all is needed.

        Its assignments to globals are its own. ``plain`` as in ``find_effects``.
        """
        if plain not in self.quiet_codes:
            self.quiet_codes[plain] = self._quiet_code(plain)
        code = self.quiet_codes[plain]
        scope = self.source.function.__globals__
        return None if code is None else make_function(code, self.source, dict(scope))

    def _quiet_code(self, plain: frozenset[str]) -> CodeType | None:
        if not (find_effects(self.source, plain) or names.declared_globals(self.source.before)):
            return None
        return self.changed_host_code(lambda s: leave_out(find_effects(s, plain), s))

    def changed_host_code(self, change: Callable[[KernelSource], bool]) -> CodeType | None:
        """Host code after a change of its source; None where that cannot be made."""
        source = self.source.fresh()
        return _host_code(source, self.captured) if change(source) else None

    def device_function(self, overrides: Mapping[str, Any]) -> Callable[..., Any]:
        """Device code as a function of the captured names, over globals plus ``overrides``."""
        scope = {**self.source.function.__globals__, **overrides}
        exec(self.device_code, scope)
        return cast("Callable[..., Any]", scope["__device"])


def make_function(module: CodeType, source: KernelSource, scope: dict[str, Any]) -> FunctionType:
    """The function that compiled host code defines, over these globals."""
    made: dict[str, Any] = {}
    exec(module, made)
    return FunctionType(made[source.tree.name].__code__, scope, source.tree.name)


def split_kernel(source: KernelSource) -> SplitKernel:
    """Compile host and device code."""
    captured = _captured_names(source)
    # One tree is enough for both: host code takes the statements around the loops.
    fresh = source.fresh()
    host = _host_code(fresh, captured)
    device = _compile(_device_tree(fresh, captured), source.file, source.name)
    return SplitKernel(source, captured, host, device)


def _captured_names(source: KernelSource) -> tuple[str, ...]:
    host = [*names.parameter_names(source.tree), *source.names_before.bound]
    wanted = source.loop_names.read
    local = {*host, *source.loop_names.bound, *source.names_after.bound}
    module = source.function.__globals__
    data = [name for name in wanted if name not in local and isinstance(module.get(name), _DATA)]
    return tuple(dict.fromkeys(name for name in (*host, *data) if name in wanted))


def _plain_function(tree: ast.FunctionDef, name: str, body: list[ast.stmt]) -> ast.FunctionDef:
    """A copy of the function with bare parameters: no decorators, annotations or defaults."""
    template = cast("ast.FunctionDef", ast.parse("def f(): pass").body[0])
    template.name = name
    template.args.args = [ast.arg(name) for name in names.parameter_names(tree)]
    template.body = body
    return ast.copy_location(template, tree)


def compile_function(tree: ast.FunctionDef, body: list[ast.stmt], source: KernelSource) -> CodeType:
    """Code that defines ``f(launch, *arguments)`` with the tree's name and parameters."""
    function = _plain_function(tree, tree.name, body)
    function.args.args.insert(0, ast.arg(LAUNCH))
    return _compile(function, source.file, source.name)


def _host_code(source: KernelSource, captured: tuple[str, ...]) -> CodeType:
    """Host code with one launch point; uses up the statements around the loops."""
    launch = functionalise.statement_at(source.loops[0], f"{LAUNCH}({', '.join(captured)})")
    known = {*names.parameter_names(source.tree), *names.definitely_bound(source.before)}
    known |= set(captured) - set(names.bound_names(source.before))
    # A name bound in one branch of host code only must not stop the launch: device code may never
    # use it.
    unsure = [name for name in captured if name not in known]
    defaults = [functionalise.statement_at(source.tree, f"{name} = None") for name in unsure]
    before, after = (
        on_device(statements, source.function.__globals__, f"{LAUNCH}.device")
        for statements in (source.before, source.after)
    )
    return compile_function(source.tree, [*defaults, *before, launch, *after], source)


def _device_tree(source: KernelSource, captured: tuple[str, ...]) -> ast.FunctionDef:
    """Device code as a function of the captured names; uses up the loops."""
    local = set(names.bound_names(source.loops)) - set(captured)
    loops = without_match(source.loops, source.refuse_pattern)
    loops = functionalise.rebind_updated_names(
        without_jumps(loops, functionalise.RUNTIME), local, functionalise.RUNTIME
    )
    body = functionalise.Functionaliser(captured).block(loops)
    tree = _plain_function(source.tree, "__device", body)
    tree.args.args = [ast.arg(name) for name in captured]
    return tree


def _compile(tree: ast.FunctionDef, file: str, kernel: str) -> CodeType:
    module = ast.Module([tree], [])
    ast.fix_missing_locations(module)
    return names.bearing_name(compile(module, file, "exec", dont_inherit=True), kernel)


FACTORIES = frozenset(
    {
        "arange", "empty", "empty_strided", "eye", "full", "linspace", "logspace", "ones", "rand",
        "randint", "randn", "randperm", "tensor", "zeros",
    }
)  # fmt: skip


def on_device(
    statements: Sequence[ast.stmt], module: Mapping[str, Any], device: str
) -> list[ast.stmt]:
    """The statements (changed in place) with ``device`` in factory calls that have none."""
    filler = _DeviceFiller(module, device)
    return [filler.visit(statement) for statement in statements]


class _DeviceFiller(ast.NodeTransformer):
    def __init__(self, module: Mapping[str, Any], device: str) -> None:
        self._torch = {name for name, value in module.items() if value is torch}
        self._device = device

    @override
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        is_factory = (
            isinstance(function, ast.Attribute)
            and function.attr in FACTORIES
            and isinstance(function.value, ast.Name)
            and function.value.id in self._torch
        )
        # Unpacked keywords may hold a device.
        if is_factory and not {None, "device"} & {keyword.arg for keyword in node.keywords}:
            device = functionalise.placed(ast.parse(self._device, mode="eval").body, node)
            node.keywords.append(ast.keyword("device", device))
        return node
