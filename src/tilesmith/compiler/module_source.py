"""The complete module for readers and for saving: generated device code plus the user's host code.

Host statements stay as the user wrote them; calls of the language in them are replaced by what they
mean under this config, so the module needs only torch and triton (and whatever else the host code
itself imports).
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tilesmith.artifacts import Artifact
from tilesmith.compiler.launch_guards.checks import HostNames, launch_checks
from tilesmith.frontend.source.kernel_source import called_name
from tilesmith.frontend.source.names import bound_names, parameter_names, read_names
from tilesmith.frontend.source.split_kernel import SplitKernel, on_device
from tilesmith.frontend.trace import Trace
from tilesmith.ir.types import TensorType
from tilesmith.schedule.config import Config

LAUNCH = "launch"
"""The name of the launcher in emitted modules."""
_PLACE = ast.Pass()
_ROOT = re.compile(r"\W")
_NUM_SM = "torch.cuda.get_device_properties({0}).multi_processor_count if {0}.type == 'cuda' else 1"
_TRITON_FUNCTIONS = frozenset({"cdiv", "next_power_of_2"})
OTHER_TRITON = "triton_module"
"""The module in host code that has a variable `triton` of its own."""
_AVAILABLE = frozenset({"torch", "triton", "tl"})
_IN_MODULE = re.compile(r"__constants__\[(\d+)\]\['(\w+)'\]")
_NAMELESS = re.compile(r"__constants__\[(\d+)\]")


class FoldLanguage(ast.NodeTransformer):
    """Replaces language calls in host code by their values.

    ``blocks`` are those that host code registers, in the order of the source.
    """

    def __init__(
        self, blocks: Sequence[int], tunables: Mapping[str, Any], module: dict[str, Any]
    ) -> None:
        self._blocks = blocks
        self._tunables = tunables
        self._module = module
        self._registered = 0
        self.triton = "triton"
        """What host code calls the module."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call: its value, what it comes to without the language, or itself."""
        self.generic_visit(node)
        name = called_name(node)
        if not self._is_ours(node.func):
            return node
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if name in ("specialize", "constexpr"):
            return given[0]
        if name == "register_block_size":
            self._registered += 1
            return ast.Constant(self._blocks[self._registered - 1])
        if name == "register_tunable":
            names = [part.value for part in given if isinstance(part, ast.Constant)]
            return ast.Constant(self._tunables[str(names[0])])
        if name == "get_num_sm" and len(node.args) == 1 and not node.keywords:
            return ast.parse(_NUM_SM.format(ast.unparse(node.args[0])), mode="eval").body
        if name in _TRITON_FUNCTIONS:
            node.func = ast.parse(f"{self.triton}.{name}", mode="eval").body
        return _of_torch(node, name) if name in ("zeros", "full") else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        """Annotations of variables name types that nothing else needs."""
        self.generic_visit(node)
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def _is_ours(self, function: ast.expr) -> bool:
        root = function
        while isinstance(root, ast.Attribute):
            root = root.value
        owner = self._module.get(root.id) if isinstance(root, ast.Name) else None
        name = getattr(owner, "__name__" if isinstance(owner, ModuleType) else "__module__", "")
        return str(name).partition(".")[0] == "tilesmith"


def _of_torch(node: ast.Call, name: str) -> ast.Call:
    """The call of torch that ``hl.zeros`` or ``hl.full`` of host code comes to."""
    spelled = {"shape": "size", "value": "fill_value"}
    keywords = [ast.keyword(spelled.get(k.arg or "", k.arg), k.value) for k in node.keywords]
    # Positions after the shape and the value: the type, then the device.
    rest = node.args[1 if name == "zeros" else 2 :]
    keywords += [ast.keyword(key, value) for key, value in zip(("dtype", "device"), rest)]
    if "dtype" not in {keyword.arg for keyword in keywords}:
        keywords.append(ast.keyword("dtype", ast.parse("torch.float32", mode="eval").body))
    made = ast.parse(f"torch.{name}()", mode="eval").body
    assert isinstance(made, ast.Call)
    made.args, made.keywords = node.args[: len(node.args) - len(rest)], keywords
    return made


@dataclass(frozen=True)
class HostPart:
    """What host code adds to a module; equal for most configs of a kernel."""

    imports: list[str]
    constants: list[str]
    text: str


HostMemo = dict[Hashable, HostPart]


def with_host_function(
    artifact: Artifact, kernel: SplitKernel, trace: Trace, config: Config, memo: HostMemo
) -> str:
    """The artifact's module with the user's host code as a function of the kernel's name.

    ``memo`` keeps host parts of one kernel between calls: parsing and printing cost milliseconds.
    """
    blocks = config.get("block_sizes", [])
    given = tuple(blocks[block.slot] for block in trace.session.registered)
    key = (id(trace), given, artifact.parameters, artifact.descriptions, artifact.grid[1:])
    part = memo.get(key)
    if part is None:
        part = memo[key] = _host_part(artifact, kernel, trace, config)
    # Imports join those of the module, constants stand below them.
    block, _, rest = artifact.source.partition("\n\n")
    constants = ["\n".join(part.constants)] if part.constants else []
    return "\n\n".join(["\n".join([*part.imports, block]), *constants, rest]) + part.text


def _host_part(artifact: Artifact, kernel: SplitKernel, trace: Trace, config: Config) -> HostPart:
    module = kernel.source.function.__globals__
    is_taken = "triton" in own_names(kernel.source.tree)
    function = folded_host(kernel, trace, config, OTHER_TRITON if is_taken else "triton")
    taken = {function.name, *own_names(function)}
    launcher = "launch_kernel" if LAUNCH in taken else LAUNCH
    parameters = set(parameter_names(function))
    host = HostNames(own_names(function), literal, parameters, default_functions(kernel))
    checks = launch_checks(artifact, trace, host).renamed(taken)
    arguments = ", ".join(parameter.source for parameter in artifact.parameters)
    text = "\n".join([*checks.statements, f"{launcher}({arguments})"])
    statements, lines = replace_constants(text, trace.constants)
    put_launch(function, statements)
    ours = {launcher, function.name, *checks.names}
    names = [name for name in free_names(function) if name not in ours]
    other = {f"import triton as {OTHER_TRITON}"} if OTHER_TRITON in names else set[str]()
    lines = sorted({*lines, *lines_for_names(module, names), *other})
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    constants = [line for line in lines if line not in imports]
    alias = f"\n\n{launcher} = {LAUNCH}\n" if launcher != LAUNCH else ""
    before = "".join([alias, *(f"\n\n{text}\n" for text in checks.functions.values())])
    return HostPart(imports, constants, f"{before}\n\n{ast.unparse(function)}\n")


def default_functions(kernel: SplitKernel) -> dict[CodeType, str]:
    """Functions that are defaults of parameters, and where a module finds them."""
    place = f"{kernel.source.tree.name}.__defaults__"
    defaults = enumerate(kernel.source.function.__defaults__ or ())
    return {d.__code__: f"{place}[{i}]" for i, d in defaults if isinstance(d, FunctionType)}


def _device_of(trace: Trace, arguments: set[str]) -> str:
    """An expression for the kernel's device: that of a tensor among the arguments."""
    for parameter in trace.function.parameters:
        is_tensor = isinstance(parameter.value.type, TensorType)
        if is_tensor and _ROOT.split(parameter.source, maxsplit=1)[0] in arguments:
            return f"{parameter.source}.device"
    return ""


def folded_host(kernel: SplitKernel, trace: Trace, config: Config, triton: str) -> ast.FunctionDef:
    """Host code as a plain function, without the language.

    ``put_launch`` says what stands where the device loops stood; ``triton`` is what host code calls
    the module that has ``cdiv``.
    """
    module, session = kernel.source.function.__globals__, trace.session
    blocks = config.get("block_sizes", [])
    registered = [blocks[block.slot] for block in session.registered]
    fold = FoldLanguage(registered, session.tunable_values, module)
    fold.triton = triton
    source = kernel.source.fresh()
    before = [new for old in source.before if (new := fold.visit(old)) is not None]
    after = [fold.visit(statement) for statement in source.after]
    kept = [statement for statement in before if not _is_self_assignment(statement)]
    source.tree.body = [*kept, _PLACE, *after]
    function = without_notes(source.tree)
    if device := _device_of(trace, set(parameter_names(function))):
        function.body = on_device(function.body, module, device)
    return function


def put_launch(function: ast.FunctionDef, statements: str) -> None:
    """Give host code the statements that stand in place of its device loops."""
    position = function.body.index(_PLACE)
    function.body[position : position + 1] = ast.parse(statements).body


def without_notes(function: ast.FunctionDef) -> ast.FunctionDef:
    """The function without decorators, and without annotations, also of functions inside."""
    function.decorator_list = []
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return function


def _is_self_assignment(statement: ast.stmt) -> bool:
    """``n = n``, which is what ``n = hl.specialize(n)`` leaves."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target, value = statement.targets[0], statement.value
    return isinstance(target, ast.Name) and isinstance(value, ast.Name) and target.id == value.id


def own_names(function: ast.FunctionDef) -> set[str]:
    """Parameters and local names of a function."""
    return {*parameter_names(function), *bound_names(function.body)}


def free_names(function: ast.FunctionDef) -> Iterable[str]:
    """What a function reads from its module."""
    own = own_names(function)
    defaults = [*function.args.defaults, *function.args.kw_defaults]
    parts: list[ast.AST] = [*function.body, *(d for d in defaults if d is not None)]
    return [name for name in read_names(parts) if name not in own]


def lines_for_names(module: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Import lines or assignments for names that host code reads from the user's module."""
    found = [name for name in names if name in module and name not in _AVAILABLE]
    return sorted(_line_for(module, name) for name in found)


def _line_for(module: dict[str, Any], name: str) -> str:
    value = module[name]
    if isinstance(value, ModuleType):
        return f"import {value.__name__}" + (f" as {name}" if value.__name__ != name else "")
    text = literal(value)
    return _import_line(module, name) if text is None else f"{name} = {text}"


def _import_line(module: dict[str, Any], name: str) -> str:
    return f"from {module.get('__name__', '__main__')} import {name}"


def literal(value: Any) -> str | None:
    """Source text that gives a constant; None if there is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    if repr(value).startswith("torch.") and type(value).__module__ == "torch":
        return repr(value)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        items = [literal(item) for item in value]
        inside = ", ".join(item for item in items if item is not None)
        closing = "," if isinstance(value, tuple) and len(items) == 1 else ""
        brackets = "[]" if isinstance(value, list) else "()"
        return None if None in items else f"{brackets[0]}{inside}{closing}{brackets[1]}"
    return None


def replace_constants(text: str, constants: Sequence[Any]) -> tuple[str, list[str]]:
    """Statements of a launch without ``__constants__``, and the lines that their names need.

    Tensors that helpers read from their own modules are imported from there.
    """
    lines: list[str] = []

    def named(match: re.Match[str]) -> str:
        lines.append(_import_line(constants[int(match.group(1))], match.group(2)))
        return match.group(2)

    def nameless(match: re.Match[str]) -> str:
        name = f"captured_{match.group(1)}"
        lines.append(f"{name} = None  # set it to the tensor that device code reached")
        return name

    text = _NAMELESS.sub(nameless, _IN_MODULE.sub(named, text))
    return text, list(dict.fromkeys(lines))
