"""``print_repro``: one file that repeats a call, with the kernel and all that it uses.

What cannot be written down is named at the top of the file, and None stands in its place.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import sha256
from math import isfinite
from pathlib import Path
from platform import platform, python_version
from types import FunctionType, ModuleType
from typing import Any, cast

import torch

from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.language.host_functions import constexpr
from tilesmith.jit.definition import KernelDefinition
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings
from tilesmith.store.lookup import describe_arguments, installed_versions

PACKAGES = ("tilesmith", "torch", "triton", "llvmlite")
OWN_SETTINGS = ("print_repro", "cache_dir", "autotune_seed_configs")
"""Settings that a file leaves to whoever runs it."""
MAX_WRITTEN = 4096
"""Integers of a tensor that are written out: which they are decides what a kernel reads."""
TENSOR_FUNCTION = '''
def tensor(shape, strides, dtype, device="cpu", values=None, between=None, is_sorted=False):
    """A tensor over the values given, over integers between two, or over random numbers."""
    length = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if all(shape) else 0
    if values is not None:
        data = torch.tensor(values, dtype=dtype)
    elif between is not None:
        data = torch.randint(between[0], between[1] + 1, (length,)).to(dtype)
    else:
        data = torch.randn(length).to(dtype)
    if is_sorted:
        data = data.sort().values
    return data.to(device).as_strided(shape, strides)
'''


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
    assigned = [f"    {line}" for line in program.values.assignments(names, arguments)]
    calling = ", ".join(map(_passed, definition.arguments.plain.parameters.values()))
    given = describe_arguments(names, arguments)
    versions = {"Python": python_version(), **installed_versions(PACKAGES)}
    return "\n".join(
        [
            f'"""Repeats a call: {definition.name}({given})."""',
            "",
            f"# {', '.join(f'{name} {version}' for name, version in versions.items())}",
            f"# {platform()}",
            *(f"# Not written down: {what}." for what in program.values.missing),
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


def with_caller(text: str, definition: KernelDefinition, arguments: Sequence[Any]) -> str:
    """A module, with a function ``call`` that runs its kernel on arguments like these."""
    program = _Program(definition.fn)
    assigned = program.values.assignments(list(definition.parameters), arguments)
    lines = [f"    {line}" for line in assigned]
    calling = ", ".join(map(_passed, definition.arguments.plain.parameters.values()))
    imported = [line for line in program.imports() if "tilesmith" not in line]
    return "\n".join(
        [
            text.rstrip("\n"),
            "",
            *(line for line in imported if line not in text.splitlines()),
            TENSOR_FUNCTION,
            *program.parts,
            "",
            "def call():",
            *(f"    # Not written down: {what}." for what in program.values.missing),
            "    torch.manual_seed(0)",
            *lines,
            f"    return {definition.name}({calling})",
            "",
            "",
            'if __name__ == "__main__":',
            "    print(call())",
            "",
        ]
    )


def _passed(parameter: inspect.Parameter) -> str:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    is_keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    return f"{parameter.name}={parameter.name}" if is_keyword else parameter.name


def _decorator(definition: KernelDefinition, config: Config | None, program: _Program) -> str:
    """The decorator with the config that ran and all settings that are not the defaults."""
    configs = [config] if config is not None else definition.configs
    written = [f"config=tilesmith.{configs[0]}"] if len(configs) == 1 else []
    if len(configs) > 1:
        written = [f"configs=[{', '.join(f'tilesmith.{c}' for c in configs)}]"]
    defaults = Settings.from_environment({}, {})
    for item in fields(Settings):
        value = getattr(definition.settings, item.name)
        if item.name not in OWN_SETTINGS and value != getattr(defaults, item.name):
            written.append(f"{item.name}={program.values.text(value)}")
    return f"@tilesmith.kernel({', '.join(written)})\n"


class _Program:
    """The parts of the file: imports, then the user's constants, functions and classes in order."""

    def __init__(self, kernel: FunctionType | Callable[..., Any]) -> None:
        self._home = kernel.__module__
        self._imports = {"torch": "import torch", "tilesmith": "import tilesmith"}
        self._known: dict[str, int] = {}
        """Names that the file has, and what they stand for."""
        self.parts: list[str] = []
        self.values = ValueWriter(self.name_of)

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
            self._known[name] = id(value)
            self.parts.append(f"{name} = {self.values.text(value)}")


class ValueWriter:
    """Writes values; ``name_of`` gives functions and classes a name, or none."""

    def __init__(self, name_of: Callable[[Any], str]) -> None:
        self._name_of = name_of
        self.missing: list[str] = []

    def assignments(self, names: Sequence[str], values: Sequence[Any]) -> Iterator[str]:
        """One line for each argument; the same object under two names stays the same."""
        known: dict[int, str] = {}
        for name, value in zip(names, values):
            is_tensor = isinstance(value, torch.Tensor)
            same = known.get(id(value)) if is_tensor else None
            yield f"{name} = {same or self.text(value)}"
            known.setdefault(id(value), name)

    def text(self, value: Any) -> str:
        """An expression that gives the value, or one like it."""
        if isinstance(value, torch.Tensor):
            return tensor_text(value)
        if isinstance(value, constexpr):
            return f"tilesmith.language.constexpr({self.text(value.value)})"
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        if isinstance(value, float) and not isfinite(value):
            return f"float('{value}')"
        if value is None or isinstance(value, (bool, int, float, str, torch.dtype)):
            return repr(value)
        if isinstance(value, Enum) or callable(value):
            return self._named(value)
        return self._container(value)

    def _named(self, value: Any) -> str:
        if isinstance(value, Enum):
            owner = self._name_of(type(value))
            return f"{owner}.{value.name}" if owner else self._missing(value)
        return self._name_of(value) or self._missing(value)

    def _container(self, value: Any) -> str:
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._call(value, cast("Any", value)._fields)
        if is_dataclass(value) and not isinstance(value, type):
            return self._call(value, [item.name for item in fields(value)])
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return f"{{{', '.join(f'{key!r}: {self.text(item)}' for key, item in items)}}}"
        if isinstance(value, (list, tuple)):
            texts = [self.text(item) for item in cast("Sequence[Any]", value)]
            listed = ", ".join(texts)
            if isinstance(value, list):
                return f"[{listed}]"
            return f"({listed}{',' if len(texts) == 1 else ''})"
        return self._missing(value)

    def _call(self, value: Any, names: Sequence[str]) -> str:
        owner = self._name_of(type(value))
        given = ", ".join(f"{name}={self.text(getattr(value, name))}" for name in names)
        return f"{owner}({given})" if owner else self._missing(value)

    def _missing(self, value: Any) -> str:
        name = getattr(value, "__name__", "")
        self.missing.append(f"{kind_of(value)}{f' `{name}`' if name else ''}")
        return "None"


def tensor_text(value: torch.Tensor) -> str:
    """A call of ``tensor`` that gives a tensor of the same form."""
    shape, strides = tuple(value.shape), tuple(value.stride())
    given = f"{shape}, {strides}, {value.dtype}"
    if value.device.type != "cpu":
        given += f", {str(value.device)!r}"
    return f"tensor({given}{_content(value)})"


def _content(value: torch.Tensor) -> str:
    """Of integers and truth values what they are, or at least between which they lie."""
    if value.is_floating_point() or value.is_complex() or value.is_meta or not value.numel():
        return ""
    length = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride()))
    whole = value.detach().as_strided((length,), (1,))
    if length <= MAX_WRITTEN:
        return f", values={whole.tolist()}"
    numbers = whole.to(torch.int64)
    low, high = int(numbers.min()), int(numbers.max())
    is_sorted = bool((numbers[1:] >= numbers[:-1]).all())
    return f", between=({low}, {high})" + (", is_sorted=True" if is_sorted else "")
