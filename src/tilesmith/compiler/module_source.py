"""The complete module for readers and for saving: generated device code plus the user's host code.

Host statements stay as the user wrote them; calls of the language in them are replaced by what they
mean under this config, so the module needs only torch and triton (and whatever else the host code
itself imports).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from tilesmith.artifacts import Artifact
from tilesmith.frontend.host_code import SplitKernel
from tilesmith.frontend.names import bound_names, read_names
from tilesmith.frontend.source import called_name
from tilesmith.frontend.trace import Trace
from tilesmith.schedule.config import Config

_AVAILABLE = frozenset({"torch", "triton", "tl"})
_TRITON_FUNCTIONS = {"cdiv": "triton.cdiv", "next_power_of_2": "triton.next_power_of_2"}


class _FoldLanguage(ast.NodeTransformer):
    """Replaces language calls in host code by their values."""

    def __init__(self, trace: Trace, config: Config, module: dict[str, Any]) -> None:
        blocks = config.get("block_sizes", [])
        self._blocks = [blocks[block.slot] for block in trace.session.registered]
        self._tunables = trace.session.tunable_values
        self._module = module
        self._registered = 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = called_name(node)
        if not self._is_ours(node.func):
            return node
        if name in ("specialize", "constexpr"):
            return node.args[0]
        if name == "register_block_size":
            self._registered += 1
            return ast.Constant(self._blocks[self._registered - 1])
        if name == "register_tunable" and isinstance(node.args[0], ast.Constant):
            return ast.Constant(self._tunables[str(node.args[0].value)])
        if name in _TRITON_FUNCTIONS:
            node.func = ast.parse(_TRITON_FUNCTIONS[name], mode="eval").body
        return node

    def _is_ours(self, function: ast.expr) -> bool:
        root = function
        while isinstance(root, ast.Attribute):
            root = root.value
        owner = self._module.get(root.id) if isinstance(root, ast.Name) else None
        name = getattr(owner, "__name__" if isinstance(owner, ModuleType) else "__module__", "")
        return str(name).partition(".")[0] == "tilesmith"


def with_host_function(
    artifact: Artifact, kernel: SplitKernel, trace: Trace, config: Config
) -> str:
    """The artifact's module with the user's host code as a function of the kernel's name."""
    fold = _FoldLanguage(trace, config, kernel.source.function.__globals__)
    arguments = ", ".join(parameter.source for parameter in artifact.parameters)
    names, text = _host_text(kernel, fold, f"launch({arguments})")
    imports = [line for line in names if line.startswith(("import ", "from "))]
    constants = [line for line in names if line not in imports]
    return _insert_names(artifact.source, imports, constants) + f"\n\n{text}\n"


def _host_text(kernel: SplitKernel, fold: _FoldLanguage, launch: str) -> tuple[list[str], str]:
    """The imports and constants host code needs, and host code as a function calling ``launch``."""
    source = kernel.source.fresh()
    before = [fold.visit(statement) for statement in source.before]
    after = [fold.visit(statement) for statement in source.after]
    function = source.tree
    function.decorator_list = []
    function.returns = None
    for argument in function.args.args:
        argument.annotation = None
    kept = [statement for statement in before if not _is_self_assignment(statement)]
    function.body = [*kept, ast.parse(launch).body[0], *after]
    module = source.function.__globals__
    return _imports(module, _free_names(function)), ast.unparse(function)


def _is_self_assignment(statement: ast.stmt) -> bool:
    """``n = n``, which is what ``n = hl.specialize(n)`` leaves."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target, value = statement.targets[0], statement.value
    return isinstance(target, ast.Name) and isinstance(value, ast.Name) and target.id == value.id


def _free_names(function: ast.FunctionDef) -> Iterable[str]:
    own = {arg.arg for arg in function.args.args} | set(bound_names(function.body))
    parts: list[ast.AST] = [*function.body, *function.args.defaults]
    return [name for name in read_names(parts) if name not in own]


def _imports(module: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Import lines or assignments for what host code reads from the user's module."""
    lines: list[str] = []
    for name in names:
        if name in _AVAILABLE or name not in module:
            continue
        value = module[name]
        if isinstance(value, ModuleType):
            lines.append(
                f"import {value.__name__}" + (f" as {name}" if value.__name__ != name else "")
            )
        elif isinstance(value, (int, float, str, bool)):
            lines.append(f"{name} = {value!r}")
        else:
            lines.append(f"from {module.get('__name__', '__main__')} import {name}")
    return sorted(lines)


def _insert_names(text: str, imports: list[str], constants: list[str]) -> str:
    """Add import lines to the module's import block, and constants below it."""
    block, _, rest = text.partition("\n\n")
    parts = ["\n".join([*imports, block]), *(["\n".join(constants)] if constants else [])]
    return "\n\n".join([*parts, rest])
