"""Code of the user's own inside a kernel: ``hl.inline_triton``, ``hl.triton_kernel``, assembly.

A ``@triton.jit`` function is copied as text into the generated module, with all it needs.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Mapping, Sequence
from string import Formatter
from textwrap import dedent
from types import FunctionType, ModuleType
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.language.parameter_names import also_named
from tilesmith.frontend.tracing.emission import as_tile, broadcast_shapes, broadcast_to
from tilesmith.frontend.tracing.tensors import TensorRef, reference_of_unknown
from tilesmith.frontend.tracing.tile import Tile
from tilesmith.frontend.tracing.tracer import Tracer, current_tracer, locate
from tilesmith.frontend.tracing.values import TileValue
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.ops.foreign import InlineAsm, InlineTriton
from tilesmith.ir.types import Shape, TileType, Value

Arguments = Sequence[Any] | Mapping[str, Any]


@also_named(src="triton_source")
def inline_triton(triton_source: str, args: Arguments, output_like: Any) -> Any:
    """Put Triton statements into the kernel; the last line is the value, like ``output_like``.

    ``{0}`` or ``{name}`` stand for ``args``; host tensors are pointers. GPU only.

    Example:
        ``y = hl.inline_triton("tl.sigmoid({0})", [x_tile], x_tile)``
    """
    function = "hl.inline_triton"
    tracer = current_tracer(function)
    if not isinstance(triton_source, str) or not triton_source.strip():
        raise _misuse(function, f"the source must be a string with code, not {triton_source!r}")
    names, values = _named(args, function)
    source = _numbered(dedent(triton_source).strip(), names, len(values), function)
    wanted = _result_types(output_like, function)
    _check_statements(source, names, len(values), (function, wanted))
    op = (source, names, "")
    return _create(tracer, op, [_operand(v, function) for v in values], (wanted, output_like))


def triton_kernel(triton_source_or_fn: Any, args: Arguments, output_like: Any) -> Any:
    """Call a ``@triton.jit`` function: the object, the name of a global, or its source. GPU only.

    It is copied into the generated code, with the functions and constants it uses.

    Example:
        ``y = hl.triton_kernel(my_jitted_function, [a, b], a)``
    """
    function = "hl.triton_kernel"
    tracer = current_tracer(function)
    name, definitions = find_definitions(triton_source_or_fn)
    names, values = _named(args, function)
    listed = [f"{key}={{{key}}}" for key in names] or [f"{{{n}}}" for n in range(len(values))]
    wanted = _result_types(output_like, function)
    op = (f"{name}({', '.join(listed)})", names, definitions)
    return _create(tracer, op, [_operand(v, function) for v in values], (wanted, output_like))


def inline_asm_elementwise(
    asm: str, constraints: str, args: Sequence[Any], dtype: Any, is_pure: bool, pack: int
) -> Any:
    """Apply assembly to ``pack`` elements at a time; a sequence of dtypes gives a tuple. GPU only.

    Example:
        ``hl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f", [x], torch.float32, True, 1)``
    """
    function = "hl.inline_asm_elementwise"
    tracer = current_tracer(function)
    _check_asm(asm, constraints, pack, function)
    tiles = [_asm_operand(value, function) for value in args]
    shape: Shape = broadcast_shapes(tiles) if tiles else ()
    operands = tuple(broadcast_to(tile, shape).value for tile in tiles)
    dtypes = [dtype] if isinstance(dtype, torch.dtype) else list(dtype)
    results = tuple(Value(TileType(_dtype(item, function), shape), "", locate()) for item in dtypes)
    tracer.builder.insert(
        InlineAsm(
            args=operands, asm=asm, constraints=constraints, is_pure=bool(is_pure), pack=pack,
            results=results, loc=locate(),
        )
    )  # fmt: skip
    values = tuple(map(TileValue, results))
    return values[0] if isinstance(dtype, torch.dtype) else values


def _misuse(function: str, problem: str, fix: str = "") -> errors.BaseError:
    return errors.InvalidAPIUsage(function=function, problem=problem, fix=fix)


def _named(args: Any, function: str) -> tuple[tuple[str, ...], list[Any]]:
    if isinstance(args, Mapping):
        names = tuple(args)
        if not all(isinstance(name, str) and name.isidentifier() for name in names):
            raise _misuse(function, f"names of arguments must be identifiers, not {list(names)}")
        return names, list(args.values())
    if not isinstance(args, (list, tuple)):
        raise _misuse(function, f"args must be a list, tuple or dict, not {kind_of(args)}")
    return (), list(args)


def _numbered(source: str, names: tuple[str, ...], count: int, function: str) -> str:
    """The source with every placeholder checked, ``{}`` numbered."""
    pieces: list[str] = []
    automatic = 0
    for text, name, _, _ in _fields(source, function):
        pieces.append(text.replace("{", "{{").replace("}", "}}"))
        if name is None:
            continue
        is_automatic = not name and not names
        wanted = str(automatic) if is_automatic else name
        automatic += is_automatic
        is_known = wanted in names or (not names and wanted.isdigit() and int(wanted) < count)
        if not is_known:
            given = ", ".join(names) or f"{count} of them"
            fix = "number placeholders as `args` are, from {0} on, or name them as its keys"
            raise _misuse(function, f"{{{name}}} stands for no argument; given: {given}", fix)
        pieces.append(f"{{{wanted}}}")
    return "".join(pieces)


def _fields(source: str, function: str) -> list[Any]:
    try:
        return list(Formatter().parse(source))
    except ValueError as error:
        problem = f"the source is no format string: {error}"
        raise _misuse(function, problem, "write braces of Triton's own as {{ and }}") from None


def _check_statements(
    source: str, names: tuple[str, ...], count: int, wanted: tuple[str, list[TileType]]
) -> None:
    """Raise unless the filled-in source parses and ends with a value where one is needed."""
    function, results = wanted
    filled = source.format(*["_"] * count, **dict.fromkeys(names, "_"))
    try:
        body = ast.parse(filled).body
    except SyntaxError as error:
        raise _misuse(
            function, f"the source is no Python: {error.msg} ({str(error.text).strip()})"
        ) from None
    if results and not isinstance(body[-1], ast.Expr):
        raise _misuse(
            function,
            "the last line must be an expression, the value that output_like describes",
            "end with the value, or pass output_like=None",
        )
    value = body[-1].value if isinstance(body[-1], ast.Expr) else None
    if isinstance(value, ast.Tuple) and len(value.elts) != len(results) and results:
        problem = f"the last line gives {len(value.elts)} values"
        raise _misuse(function, f"{problem}, output_like describes {len(results)}")


def _result_types(output_like: Any, function: str) -> list[TileType]:
    if output_like is None:
        return []
    items = output_like if isinstance(output_like, (list, tuple)) else [output_like]
    for item in items:
        if not isinstance(item, TileValue):
            raise _misuse(
                function,
                f"output_like must be a device value, a tuple of them or None, not {kind_of(item)}",
            )
    return [item.tile for item in items]


def _operand(value: Any, function: str) -> Value:
    if isinstance(value, torch.Tensor):
        value = reference_of_unknown(value)
    if isinstance(value, TensorRef):
        return value.value
    return _asm_operand(value, function).value


def _asm_operand(value: Any, function: str) -> TileValue:
    if isinstance(value, Tile):
        value = value.index
    if not isinstance(value, (TileValue, int, float)):
        raise _misuse(function, f"{kind_of(value)} cannot be an argument of device code")
    return as_tile(value)


def _create(
    tracer: Tracer,
    code: tuple[str, tuple[str, ...], str],
    operands: list[Value],
    wanted: tuple[list[TileType], Any],
) -> Any:
    types, output_like = wanted
    results = tuple(Value(kind, "", locate()) for kind in types)
    source, names, definitions = code
    tracer.builder.insert(
        InlineTriton(
            args=tuple(operands), source=source, names=names, definitions=definitions,
            results=results, loc=locate(),
        )
    )  # fmt: skip
    values = tuple(map(TileValue, results))
    return values if isinstance(output_like, (list, tuple)) else next(iter(values), None)


def _check_asm(asm: Any, constraints: Any, pack: Any, function: str) -> None:
    for name, text in (("asm", asm), ("constraints", constraints)):
        if not isinstance(text, str):
            raise _misuse(function, f"{name} must be a string, not {kind_of(text)}")
    if not isinstance(pack, int) or pack < 1:
        raise _misuse(function, f"pack must be an integer of at least 1, not {pack!r}")


def _dtype(item: Any, function: str) -> Any:
    if not isinstance(item, torch.dtype):
        raise _misuse(function, f"dtype must be a torch dtype or several, not {kind_of(item)}")
    return from_torch(item)


_PROVIDED = ("torch", "triton", "tl")
"""Modules that every generated module imports under these names."""


def find_definitions(function: Any) -> tuple[str, str]:
    """The name of a jitted function and the source that defines it.

    ``function`` is the object, the name of a global of the kernel's module, or the source itself.
    """
    if isinstance(function, str) and not function.strip().isidentifier():
        return _from_source(function)
    scope = _user_globals()
    if isinstance(function, str):
        name = function.strip()
        if name not in scope:
            raise _not_jitted(f"the kernel's module has no `{name}`")
        function = scope[name]
    collector = _Collector()
    return collector.add_function(function), collector.text()


def _from_source(text: str) -> tuple[str, str]:
    try:
        body = ast.parse(dedent(text)).body
    except SyntaxError as error:
        raise _not_jitted(f"the source is no Python: {error.msg}") from None
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    if not functions:
        raise _not_jitted("the source defines no function")
    if not functions[-1].decorator_list:
        raise _not_jitted(f"`{functions[-1].name}` has no @triton.jit")
    return functions[-1].name, dedent(text).strip()


def _not_jitted(problem: str) -> errors.BaseError:
    return errors.InvalidAPIUsage(
        function="hl.triton_kernel",
        problem=problem,
        expected="a @triton.jit function, the name of a global one, or the source of one",
    )


def _user_globals() -> dict[str, Any]:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    return frame.f_globals


class _Collector:
    """Definitions in the order in which a module needs them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def text(self) -> str:
        """All definitions, constants first."""
        constants = [text for text in self._texts.values() if "\n" not in text]
        functions = [text for text in self._texts.values() if "\n" in text]
        return "\n\n\n".join(["\n".join(constants), *functions] if constants else functions)

    def add_function(self, jitted: Any) -> str:
        """Take in a function and what it reads; gives its name."""
        plain = getattr(jitted, "fn", None)
        if not isinstance(plain, FunctionType) or not hasattr(jitted, "src"):
            raise _not_jitted(f"{kind_of(jitted)} is not under @triton.jit")
        name = plain.__name__
        if name in self._texts:
            return name
        source = dedent(inspect.getsource(plain)).strip()
        self._texts[name] = ""
        for used in _names_read(source):
            if used in plain.__globals__ and used not in self._texts:
                self._add_global(used, plain.__globals__[used])
        # After what it needs, so that the text reads from top to bottom.
        del self._texts[name]
        self._texts[name] = source
        return name

    def _add_global(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType):
            if name not in _PROVIDED:
                self._texts[name] = f"import {value.__name__} as {name}"
        elif hasattr(value, "src") and isinstance(getattr(value, "fn", None), FunctionType):
            self.add_function(value)
        elif str(getattr(value, "__module__", "")).startswith("triton."):
            self._texts[name] = _triton_constant(name, value)
        elif isinstance(value, (bool, int, float, str)):
            self._texts[name] = f"{name} = tl.constexpr({value!r})"
        elif not hasattr(builtins, name):
            raise _not_jitted(
                f"it reads the global `{name}`, {kind_of(value)}, which cannot be copied"
            )


def _triton_constant(name: str, value: Any) -> str:
    """A function of Triton's own by import, a ``tl.constexpr`` by value."""
    if hasattr(value, "value"):
        return f"{name} = tl.constexpr({value.value!r})"
    home = getattr(value, "__module__", "triton.language")
    return f"from {home} import {value.__name__} as {name}"


def _names_read(source: str) -> list[str]:
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name))
    return list(dict.fromkeys(node.id for node in nodes if isinstance(node.ctx, ast.Load)))
