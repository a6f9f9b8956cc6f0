"""``print_repro``: one file that repeats a call, with the kernel and all that it uses.

What cannot be written down is named at the top of the file, and None stands in its place.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from platform import platform, python_version
from types import FunctionType, ModuleType
from typing import Any

from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.output.values import TENSOR_FUNCTION, ValueWriter
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings
from tilesmith.store.lookup import describe_arguments, installed_versions

PACKAGES = ("tilesmith", "torch", "triton", "llvmlite")
OWN_SETTINGS = ("print_repro", "cache_dir", "autotune_seed_configs")
"""Settings that a file leaves to whoever runs it."""


def print_repro(
    definition: KernelDefinition, arguments: Sequence[Any], config: Config | None = None
) -> None:
    """Write the file and say where it is; or why there is none."""
    try:
        text = repro_text(definition, arguments, config)
        digest = sha256(text.encode()).hexdigest()[:12]
        path = Path(definition.settings.cache_dir) / "repro" / f"{definition.name}_{digest}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        told = f"this file repeats the call of {definition.name}: {path}"
    except OSError as error:
        told = f"the call of {definition.name} is not written down: {error}"
    # A kernel runs also where nobody reads: stderr may be closed, full or None.
    with suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(f"tilesmith: {told}\n")


@contextmanager
def repro_on_failure(definition: KernelDefinition, arguments: Sequence[Any]) -> Iterator[None]:
    """Write the file if what follows fails, and the settings ask for it."""
    is_done = False
    try:
        yield
        is_done = True
    finally:
        if not is_done and definition.settings.print_repro:
            print_repro(definition, arguments)


@contextmanager
def writing_repro(
    definition: KernelDefinition, arguments: Sequence[Any], find_config: Callable[[], Config | None]
) -> Iterator[None]:
    """Write the file with the config that was found meanwhile, if the settings ask for it."""
    try:
        yield
    finally:
        if definition.settings.print_repro:
            print_repro(definition, arguments, find_config())


def repro_text(
    definition: KernelDefinition, arguments: Sequence[Any], config: Config | None
) -> str:
    """A program that calls a kernel; raises OSError where there is no source to copy."""
    program = _Program(definition.fn)
    program.add_function(definition.fn, _decorator(definition, config, program))
    names = list(definition.parameters)
    values = ValueWriter(program.name_of)
    assigned = [f"    {line}" for line in values.assignments(names, arguments)]
    calling = ", ".join(map(_passed, definition.signature.parameters.values()))
    given = describe_arguments(names, arguments)
    missing = [*program.missing, *values.missing]
    return "\n".join(
        [
            f'"""Repeats a call: {definition.name}({given})."""',
            "",
            *(f"# {line}" for line in _circumstances()),
            *(f"# Not written down: {what}." for what in missing),
            "",
            "from __future__ import annotations",
            "",
            *program.imports(),
            "",
            TENSOR_FUNCTION,
            *program.parts,
            "",
            "",
            "def main():",
            "    torch.manual_seed(0)",
            *assigned,
            f"    result = {definition.name}({calling})",
            f'    print("{definition.name} returned", type(result).__name__)',
            "",
            "",
            'if __name__ == "__main__":',
            "    main()",
            "",
        ]
    )


def _circumstances() -> list[str]:
    versions = {"Python": python_version(), **installed_versions(PACKAGES)}
    return [", ".join(f"{name} {version}" for name, version in versions.items()), platform()]


def _passed(parameter: inspect.Parameter) -> str:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    is_keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    return f"{parameter.name}={parameter.name}" if is_keyword else parameter.name


def _decorator(definition: KernelDefinition, config: Config | None, program: _Program) -> str:
    """The decorator with the config that ran and all settings that are not the defaults."""
    values = ValueWriter(program.name_of)
    configs = [config] if config is not None else definition.configs
    written = [f"config=tilesmith.{configs[0]}"] if len(configs) == 1 else []
    if len(configs) > 1:
        written = [f"configs=[{', '.join(f'tilesmith.{c}' for c in configs)}]"]
    defaults = Settings.from_environment({}, {})
    for item in fields(Settings):
        value = getattr(definition.settings, item.name)
        if item.name not in OWN_SETTINGS and value != getattr(defaults, item.name):
            written.append(f"{item.name}={values.text(value)}")
    program.missing += values.missing
    return f"@tilesmith.kernel({', '.join(written)})\n"


class _Program:
    """The parts of the file: imports, then the user's constants, functions and classes in order."""

    def __init__(self, kernel: FunctionType | Callable[..., Any]) -> None:
        self._home = kernel.__module__
        self._imports = {"torch": "import torch", "tilesmith": "import tilesmith"}
        self._known: dict[str, int] = {}
        """Names that the file has, and what they stand for."""
        self.parts: list[str] = []
        self.missing: list[str] = []

    def imports(self) -> list[str]:
        """The lines at the top."""
        return sorted(self._imports.values())

    def add_function(self, function: Any, decorator: str = "") -> None:
        """Copy a function, after all that it uses."""
        self._known[function.__name__] = id(function)
        self._copy(function, function.__globals__, decorator)

    def name_of(self, value: Any) -> str:
        """The name of a function or class in this file; empty if it cannot have one."""
        name = getattr(value, "__name__", "")
        if not name.isidentifier() or getattr(value, "__closure__", None):
            return ""
        self._declare(name, value)
        return name if self._known.get(name) == id(value) or name in self._imports else ""

    def _copy(self, thing: Any, scope: dict[str, Any], decorator: str = "") -> None:
        source = textwrap.dedent(inspect.getsource(thing))
        (node,) = ast.parse(source).body[:1]
        local = thing.__code__.co_varnames if isinstance(thing, FunctionType) else ()
        for name in dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name)):
            if name in scope and name not in (*local, *self._known):
                self._declare(name, scope[name])
        first = getattr(node, "lineno", 1) if isinstance(node, ast.FunctionDef) else 1
        body = "\n".join(source.splitlines()[first - 1 :])
        self.parts.append(f"\n\n{decorator}{body}")

    def _declare(self, name: str, value: Any) -> None:
        """Give a global of the user's its meaning in this file."""
        if name in self._known or name in self._imports:
            return
        inner = getattr(value, "fn", value)  # a kernel that is used as a plain function
        if isinstance(value, ModuleType):
            full = value.__name__
            self._imports[name] = f"import {full}" + ("" if full == name else f" as {name}")
        elif isinstance(inner, (FunctionType, type)) and inner.__module__ == self._home:
            self._known[name] = id(inner)
            self._copy(inner, getattr(inner, "__globals__", vars(sys.modules[self._home])))
        elif getattr(inner, "__module__", None) and hasattr(inner, "__name__"):
            self._imports[name] = f"from {inner.__module__} import {inner.__name__} as {name}"
        else:
            self._declare_value(name, value)

    def _declare_value(self, name: str, value: Any) -> None:
        values = ValueWriter(self.name_of)
        self._known[name] = id(value)
        self.parts.append(f"{name} = {values.text(value)}")
        self.missing += values.missing
