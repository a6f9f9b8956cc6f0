"""The source of a ``@triton.jit`` function with all it needs, as text for a generated module."""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from textwrap import dedent
from types import FunctionType, ModuleType
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.tracer import locate

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
            raise _misuse(f"the kernel's module has no `{name}`")
        function = scope[name]
    collector = _Collector()
    return collector.add_function(function), collector.text()


def _from_source(text: str) -> tuple[str, str]:
    try:
        body = ast.parse(dedent(text)).body
    except SyntaxError as error:
        raise _misuse(f"the source is no Python: {error.msg}") from None
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    if not functions:
        raise _misuse("the source defines no function")
    if not functions[-1].decorator_list:
        raise _misuse(f"`{functions[-1].name}` has no @triton.jit")
    return functions[-1].name, dedent(text).strip()


def _misuse(problem: str) -> errors.BaseError:
    return errors.InvalidAPIUsage(
        function="hl.triton_kernel",
        problem=problem,
        expected="a @triton.jit function, the name of a global one, or the source of one",
        loc=locate(),
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
        """All of them."""
        constants = [text for text in self._texts.values() if "\n" not in text]
        functions = [text for text in self._texts.values() if "\n" in text]
        return "\n\n\n".join(["\n".join(constants), *functions] if constants else functions)

    def add_function(self, jitted: Any) -> str:
        """Take in a function and what it reads; gives its name."""
        plain = getattr(jitted, "fn", None)
        if not isinstance(plain, FunctionType) or not hasattr(jitted, "src"):
            raise _misuse(f"{kind_of(jitted)} is not under @triton.jit")
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
            raise _misuse(f"it reads the global `{name}`, {kind_of(value)}, which cannot be copied")


def _triton_constant(name: str, value: Any) -> str:
    """A function of Triton's own by import, a ``tl.constexpr`` by value."""
    if hasattr(value, "value"):
        return f"{name} = tl.constexpr({value.value!r})"
    home = getattr(value, "__module__", "triton.language")
    return f"from {home} import {value.__name__} as {name}"


def _names_read(source: str) -> list[str]:
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name))
    return list(dict.fromkeys(node.id for node in nodes if isinstance(node.ctx, ast.Load)))
