"""A Python package from kernels that are compiled now: readable host code, binaries, a manifest.

Host code stays as the user wrote it. At its launch point it calls one function, which takes the
first code that was made for the values there; each code says so itself, by its checks.
"""

from __future__ import annotations

import ast
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tilesmith.compiler.module_source import (
    folded_host,
    free_names,
    literal,
    own_names,
    put_launch,
)
from tilesmith.compiler.specialization import Variant
from tilesmith.export.binaries import cannot
from tilesmith.export.codes import (
    CHECKS,
    LAUNCHER,
    SOURCE_VALUES,
    Code,
    Wanted,
    make_code,
    parse_targets,
)
from tilesmith.export.launcher import FORMAT, MANIFEST, manifest_hash, refuse_others
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.kernel import Kernel
from tilesmith.jit.staging.kernel import StagedKernel, find_device_source
from tilesmith.jit.staging.module import staged_host
from tilesmith.schedule.config import Config
from tilesmith.store.lookup import toolchain
from tilesmith.targets import Target
from tilesmith.version import __version__

_LAUNCHER_FILE = Path(__file__).with_name("launcher.py")
_SIBLINGS = ("_cpu.py", "_gpu.py", "_from_source.py")


_REFUSING = """
try:
    pass
except (AttributeError, TypeError) as _error:
    {}
    raise
"""


class HostText(NamedTuple):
    """Host code around a launch, and what its names need."""

    imports: str
    constants: str
    function: str


def export_package(
    kernel: Kernel[..., Any],
    samples: Sequence[tuple[Any, ...]],
    folder: str | Path,
    *,
    target: str = "cpu",
    config: Config | None = None,
) -> Path:
    """Write a package that runs a kernel on arguments like the samples, with torch alone.

    Example:
        ``export_package(softmax, [(x,)], "softmax_package", target="cpu,cuda:90")``

    Args:
        kernel: a kernel; of one of several launches, stages run on copies of the samples.
        samples: sets of arguments; each is compiled for each target.
        folder: the package; it must not exist.
        target: what to compile for. Calls take the first code that was made for them.
        config: for all samples; otherwise what a search has found, or the kernel's own.
    """
    folder, targets = Path(folder), parse_targets(target)
    if not folder.name.isidentifier() or folder.exists():
        problem = "exists" if folder.exists() else "is no name of a Python package"
        raise cannot(kernel.name, f"{folder} {problem}", "choose another folder with --output")
    points = _Points(kernel, config)
    for args in samples:
        for one in targets:
            points.add(args, one)
    files = _files(kernel, points)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".tilesmith_", dir=folder.parent) as work:
        made = Path(work) / folder.name
        for name, content in files.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_bytes(content)
        shutil.move(made, folder)
    return folder


@dataclass
class LaunchPoint:
    """A place in host code where device loops stood, and all code for it."""

    name: str
    """Of the function that is called there."""
    captured: Sequence[str]
    made: dict[tuple[BoundKernel, Target, Variant | None], Code] = field(
        default_factory=dict[tuple[BoundKernel, Target, Variant | None], Code]
    )

    @property
    def codes(self) -> list[Code]:
        """In the order in which a launch tries them."""
        return list(self.made.values())

    @property
    def told_by(self) -> list[str]:
        """As few tensors as tell codes apart by their sizes, which are constants of each code."""
        found = [code.shapes for code in self.codes]
        known = [name for name in self.captured if all(name in shapes for shapes in found)]
        chosen: list[str] = []
        for name in known:
            more = [*chosen, name]
            told, before = ({tuple(s[n] for n in names) for s in found} for names in (more, chosen))
            chosen = more if len(told) > len(before) else chosen
        return chosen

    @property
    def call(self) -> str:
        """The statement that stands there."""
        return f"{self.name}({', '.join(self.captured)})"

    def add(self, bound: BoundKernel, args: tuple[Any, ...], wanted: Wanted) -> Code:
        """Compile for such arguments, but once: with runtime sizes one code serves many."""
        key = bound, wanted.target, wanted.variant
        if key not in self.made:
            target = str(wanted.target).replace(":", "_")
            stage = self.name.removeprefix("_launch").replace("_", "stage") + "_"
            name = f"{stage}{target}_{len(self.made)}".lstrip("_")
            self.made[key] = make_code(bound, args, wanted, name)
        return self.made[key]


class _Points:
    """The launch points of a kernel, and its host code around them."""

    def __init__(self, kernel: Kernel[..., Any], config: Config | None) -> None:
        self.kernel, self._config = kernel, config
        staged: StagedKernel | None = kernel.staged
        self._staged = staged
        kernels = [kernel] if staged is None else staged.kernels
        names = ["_launch"] if staged is None else [f"_launch_{i + 1}" for i in range(len(kernels))]
        self.listed = [
            LaunchPoint(name, part.definition.split.captured) for name, part in zip(names, kernels)
        ]
        self._hosts: dict[HostText, str] = {}
        self._tensors = list(kernel.definition.parameters)
        """Parameters that were tensors in all samples so far."""

    @property
    def host(self) -> HostText:
        """Host code, the same for all samples and targets."""
        return next(iter(self._hosts))

    @property
    def function(self) -> str:
        """Host code, which says of arguments that are no tensors that they should be."""
        (function,) = ast.parse(self.host.function).body
        assert isinstance(function, ast.FunctionDef)
        changed = {
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        }
        given = "".join(f", {name}={name}" for name in self._tensors if name not in changed)
        if given:
            refuse = f"{LAUNCHER}.{refuse_others.__name__}({self.kernel.name!r}, _error{given})"
            (guarded,) = ast.parse(_REFUSING.format(refuse)).body
            assert isinstance(guarded, ast.Try)
            start = ast.get_docstring(function) is not None
            guarded.body = function.body[start:]
            function.body[start:] = [guarded]
        return ast.unparse(function)

    @property
    def codes(self) -> list[Code]:
        """Those of all launch points."""
        return [code for point in self.listed for code in point.codes]

    def add(self, args: tuple[Any, ...], target: Target) -> None:
        """Compile what a call with such arguments launches."""
        make = self._host_of_one if self._staged is None else self._host_of_stages
        given = zip(self.kernel.definition.parameters, self.kernel.normalize_args(*args))
        others = {name for name, value in given if not hasattr(value, "data_ptr")}
        self._tensors = [name for name in self._tensors if name not in others]
        text = _host_text(self.kernel, make(args, target), self.listed)
        self._hosts.setdefault(text, self.codes[-1].name)
        if len(self._hosts) > 1:
            names = " and ".join(self._hosts.values())
            problem = f"its host code differs between {names}: it looks at its config"
            raise cannot(self.kernel.name, problem, "export them as packages of their own")

    def _host_of_one(self, args: tuple[Any, ...], target: Target) -> ast.FunctionDef:
        (point,) = self.listed
        bound = self.kernel.bind(args, target=target)
        made = point.add(bound, args, Wanted(target, self._config))
        split = self.kernel.definition.split
        function = folded_host(split, made.variant.trace, made.config, LAUNCHER)
        put_launch(function, point.call)
        return function

    def _host_of_stages(self, args: tuple[Any, ...], target: Target) -> ast.FunctionDef:
        """Host code may go on with what a stage has computed, so stages run, on copies."""
        staged, definition = self._staged, self.kernel.definition
        assert staged is not None
        complete = definition.arguments.complete(args)

        whole = self._config or next(iter(definition.configs), None)

        def launch(number: int, *values: Any) -> None:
            stage = staged.kernels[number]
            bound: BoundKernel = stage.bind(values, target=target)
            part = whole and staged.configs.of_stage(whole, number)
            used = bound.capture_launch(values).variant
            self.listed[number].add(bound, values, Wanted(target, part or None, used))
            stage(*values)

        session = staged.run_on_copies(complete, staged.launches(launch), self._config)
        calls = [point.call for point in self.listed]
        device = find_device_source(definition.parameters, complete)
        return staged_host(staged.source, calls, session, device, LAUNCHER)


def _host_text(
    kernel: Kernel[..., Any], function: ast.FunctionDef, points: Sequence[LaunchPoint]
) -> HostText:
    """Host code that hands what device code reads to the launcher, and what its names need."""
    scope, own = kernel.definition.fn.__globals__, {function.name, "torch", LAUNCHER}
    captured = {name for point in points for name in point.captured} - own_names(function)
    foreign = {*free_names(function), *captured} - own - {point.name for point in points}
    lines = sorted(_line_for(kernel, scope[name], name) for name in foreign if name in scope)
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    constants = [line for line in lines if line not in imports]
    return HostText("\n".join(imports), "\n".join(constants), ast.unparse(function))


def _line_for(kernel: Kernel[..., Any], value: Any, name: str) -> str:
    """What gives a module a name of the user's module."""
    is_module = isinstance(value, ModuleType)
    home = str(value.__name__ if is_module else getattr(value, "__module__", None))
    text = None if is_module else literal(value)
    if text is not None:
        return f"{name} = {text}"
    is_there = home.partition(".")[0] in {"torch", *sys.stdlib_module_names}
    if not (is_there and hasattr(value, "__name__")):
        what = "a value of its module" if is_there else f"which needs `{home}`"
        problem = f"its host code uses `{name}`, {what}"
        raise cannot(kernel.name, problem, "use torch and the standard library only in host code")
    if is_module:
        return f"import {home} as {name}" if home != name else f"import {home}"
    return f"from {home} import {value.__name__} as {name}"


def _files(kernel: Kernel[..., Any], points: _Points) -> dict[str, bytes]:
    """Everything in a package, by its path there."""
    source, codes = kernel.definition.source, points.codes
    texts = {
        "__init__.py": f'"""{_about(kernel)}"""\n\nfrom .{kernel.name} import {kernel.name}\n\n'
        f"__all__ = [{kernel.name!r}]\n",
        f"{kernel.name}.py": _module_text(kernel, points),
        f"{LAUNCHER}.py": _LAUNCHER_FILE.read_text(encoding="utf-8"),
        **{name: _LAUNCHER_FILE.with_name(name).read_text(encoding="utf-8") for name in _SIBLINGS},
        "source/kernel.txt": source.text,
        **{f"source/{code.name}{code.readable[0]}": code.readable[1] for code in codes},
    }
    files = {name: text.encode() for name, text in texts.items()}
    entries: list[dict[str, Any]] = []
    for point in points.listed:
        for code in point.codes:
            path = f"binaries/{code.name}{code.binary.suffix}"
            files[path] = code.binary.content
            shapes = [code.shapes[name] for name in point.told_by]
            entries.append({**code.entry, "binary": path, "shapes": shapes})
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "kernel": kernel.name,
        "from": Path(str(source.file)).name,
        "tilesmith": __version__,
        "toolchain": dict(toolchain()),
        "code": entries,
        "files": {name: sha256(content).hexdigest() for name, content in sorted(files.items())},
    }
    manifest["hash"] = manifest_hash(json.loads(json.dumps(manifest)))
    return {**files, MANIFEST: (json.dumps(manifest, indent=2) + "\n").encode()}


def _about(kernel: Kernel[..., Any]) -> str:
    return f"{kernel.name}, exported by tilesmith {__version__}; {MANIFEST} says for what."


def _module_text(kernel: Kernel[..., Any], points: _Points) -> str:
    """The module that users call: checks, one reader for each code, host code."""
    host, codes = points.host, points.codes
    functions: dict[str, str] = {}
    for code in codes:
        # The longer of two texts of a check also knows runtime sizes.
        for name, text in code.checks.functions.items():
            functions[name] = max(functions.get(name, ""), text, key=len)
    imports = ["import struct", "import torch", *host.imports.splitlines()]
    head = "\n".join([*sorted(set(imports)), "", f"from . import {LAUNCHER}"])
    parts = [
        f'"""{_about(kernel)}"""\n\n{head}',
        *([host.constants] if host.constants else []),
        *functions.values(),
        *(code.reader.text(point.told_by) for point in points.listed for code in point.codes),
        *(_load_text(point) for point in points.listed),
        points.function,
    ]
    return "\n\n\n".join(parts) + "\n"


def _load_text(point: LaunchPoint) -> str:
    """What gives a module the function of a launch point."""
    if not point.codes:
        problem = "not reached with the arguments that this package was made for"
        return f"def {point.name}(*_):\n    raise NotImplementedError({problem!r})"
    readers = ", ".join(
        f"{code.name!r}: (_{code.name}{CHECKS}, _{code.name})" for code in point.codes
    )
    names = [code.name for code in point.codes if not code.is_native]
    values = ", ".join(f"{name!r}: _{name}{SOURCE_VALUES}" for name in names)
    listed, told = ", ".join(point.captured), [f"{name}.shape" for name in point.told_by]
    key = told[0] if len(told) == 1 else f"({', '.join(told)})"
    given = f"{{{readers}}}, lambda {listed}: {key}, {{{values}}}"
    return (
        f"{point.name}_ready, {point.name}_first = {LAUNCHER}.load(__file__, {given})\n\n\n"
        f"def {point.name}({listed}):\n"
        f"    try:\n"
        f"        _read, _code = {point.name}_ready[{key}]\n"
        f"        if _read(_code.run, {listed}) is None:\n"
        f"            return\n"
        f"    except (LookupError, AttributeError, ValueError):\n"
        f"        pass  # its first such call, or one that has to be told what is wrong\n"
        f"    {point.name}_first({listed})"
    )
