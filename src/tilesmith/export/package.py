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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from typing_extensions import override

import tilesmith.exc as errors
from tilesmith.artifacts import Artifact
from tilesmith.compiler.launch_guards.checks import (
    REQUIRE,
    HostNames,
    LaunchChecks,
    launch_checks,
)
from tilesmith.compiler.module_source import (
    default_functions,
    folded_host,
    free_names,
    literal,
    own_names,
    put_launch,
)
from tilesmith.compiler.specialization import Variant
from tilesmith.export.binaries import Binary, build, parse_targets
from tilesmith.export.launcher import FORMAT, MANIFEST, manifest_hash
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.kernel import Kernel
from tilesmith.schedule.config import Config
from tilesmith.store.lookup import describe_arguments, find_stored_config, toolchain
from tilesmith.targets import Target

LAUNCHER = "_launcher"
_LAUNCHER_FILE = Path(__file__).with_name("launcher.py")
_ALIGNED = 16
"""Bytes. Code for a GPU is compiled for tensors that start at a multiple."""
_OWN = frozenset({"torch", LAUNCHER, "_launch"})


class HostText(NamedTuple):
    """Host code around a launch, and what its names need."""

    imports: str
    constants: str
    function: str


@dataclass(frozen=True)
class Code:
    """Code for one set of arguments on one target, and the function that hands values to it."""

    name: str
    binary: Binary
    reader: str
    """The function's text."""
    checks: LaunchChecks
    host: HostText
    readable: tuple[str, str]
    """A file for readers: how its name ends, and its text."""
    entry: Mapping[str, Any]
    """What the manifest says about it."""


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
        kernel: a kernel of one launch.
        samples: sets of arguments; each is compiled for each target.
        folder: the package; it must not exist.
        target: what to compile for. Calls take the first code that was made for them.
        config: for all samples; otherwise what a search has found, or the kernel's own.
    """
    folder, targets = Path(folder), parse_targets(target)
    if not folder.name.isidentifier() or folder.exists():
        problem = "exists" if folder.exists() else "is no name of a Python package"
        raise _cannot(kernel, f"{folder} {problem}", "choose another folder with --output")
    codes = list(_codes(kernel, samples, targets, config))
    files = _files(kernel, codes)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".tilesmith_", dir=folder.parent) as work:
        made = Path(work) / folder.name
        for name, content in files.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_bytes(content)
        shutil.move(made, folder)
    return folder


def _cannot(kernel: Kernel[..., Any], problem: str, fix: str = "") -> errors.BaseError:
    return errors.CannotExport(function=kernel.name, problem=problem, fix=fix)


def _codes(
    kernel: Kernel[..., Any],
    samples: Sequence[tuple[Any, ...]],
    targets: Sequence[Target],
    config: Config | None,
) -> Iterator[Code]:
    if kernel.staged is not None:
        raise _cannot(kernel, "it has several launches", "split it into kernels of one launch")
    known: list[tuple[BoundKernel, Target]] = []
    hosts: dict[HostText, str] = {}
    for args in samples:
        for target in targets:
            bound = kernel.bind(args, target=target)
            # With runtime sizes one code serves many samples.
            if (bound, target) in known:
                continue
            known.append((bound, target))
            code = _make_code(kernel, bound, args, (target, config), len(known) - 1)
            hosts.setdefault(code.host, code.name)
            if len(hosts) > 1:
                names = " and ".join(hosts.values())
                problem = f"its host code differs between {names}: it looks at its config"
                raise _cannot(kernel, problem, "export them as packages of their own")
            yield code


def _make_code(
    kernel: Kernel[..., Any],
    bound: BoundKernel,
    args: tuple[Any, ...],
    chosen: tuple[Target, Config | None],
    number: int,
) -> Code:
    target, given = chosen
    complete = kernel.definition.arguments.complete(args)
    chosen_config, origin = _choose_config(bound, complete, target, given)
    # As in process, where the first trace says what a config comes to.
    config = bound.specialization.spec(target).normalize(chosen_config)
    variant = bound.specialization.find(config)
    artifact = bound.specialization.artifact(config, target, variant)
    if artifact.descriptions:
        # The launcher hands over addresses; hardware descriptors would have to be encoded.
        plain = {k: v for k, v in config.items() if (k, v) != ("structure", "warp_roles")}
        config = Config.from_dict(plain).updated(indexing="pointer", atomic_indexing="pointer")
        artifact = bound.specialization.artifact(config, target, variant)
        origin += ", with pointers instead of descriptors"
    name = f"{str(target).replace(':', '_')}_{number}"
    binary = build(artifact, variant.trace.observed)
    captured = kernel.definition.split.captured
    parameters = set(kernel.definition.parameters)
    defaults = default_functions(kernel.definition.split)
    host = HostNames(set(captured), literal, parameters, defaults)
    extra = list(_device_checks(artifact, binary))
    checks = launch_checks(artifact, variant.trace, host, extra)
    entry = {
        "name": name,
        "target": str(target),
        "arguments": describe_arguments(kernel.definition.parameters, complete),
        "config": dict(config),
        "config_from": origin,
        "parameters": [[p.name, p.dtype, p.source] for p in artifact.parameters],
        **binary.entry,
    }
    checks = checks.renamed({kernel.name, *captured})
    reader = "\n".join(_reader_lines(name, kernel, artifact, binary, checks))
    readable = (".txt", artifact.readable) if artifact.llvm else (".py", artifact.source)
    host_text = _host_text(kernel, variant, config)
    return Code(name, binary, reader, checks, host_text, readable, entry)


def _choose_config(
    bound: BoundKernel, args: tuple[Any, ...], target: Target, given: Config | None
) -> tuple[Config, str]:
    """A config, and where it comes from."""
    if given is not None:
        return given, "given"
    stored = find_stored_config(bound, args, bound.configs)
    if stored is not None:
        return stored, "found by a search"
    is_given = bound.chosen is not None or bool(bound.configs)
    return bound.resolve(None, target), "of the kernel" if is_given else "the default"


def _host_text(kernel: Kernel[..., Any], variant: Variant, config: Config) -> HostText:
    """Host code that hands what device code reads to the launcher."""
    split = kernel.definition.split
    function = folded_host(split, variant.trace, config, LAUNCHER)
    put_launch(function, f"_launch({', '.join(split.captured)})")
    scope, names = split.source.function.__globals__, set(free_names(function))
    foreign = {*names, *(set(split.captured) - own_names(function))} - _OWN - {function.name}
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
        raise _cannot(kernel, problem, "use torch and the standard library only in host code")
    if is_module:
        return f"import {home} as {name}" if home != name else f"import {home}"
    return f"from {home} import {value.__name__} as {name}"


def _reader_lines(
    name: str, kernel: Kernel[..., Any], artifact: Artifact, binary: Binary, checks: LaunchChecks
) -> Iterator[str]:
    """A function from the values at the launch point to what the launcher hands over."""
    made = {p.name: p.source for p in artifact.parameters if p.is_made_at_launch}
    sources = [parameter.source for parameter in artifact.parameters]
    if any("__constants__" in text for text in (*checks.statements, *sources)):
        raise _cannot(kernel, "its device code reads a tensor that is no argument", "pass it")
    order = "@" if binary.suffix == ".cubin" else "="
    yield f"_pack_{name} = struct.Struct({order + binary.layout!r}).pack"
    yield "\n"
    yield f"def _{name}({', '.join(kernel.definition.split.captured)}):"
    yield from (f"    {line}" for line in checks.statements)
    yield from (f"    _{key} = {source}" for key, source in made.items())
    values = [
        f"_{p.name}.data_ptr()" if p.name in made else p.source + ".data_ptr()" * p.is_tensor
        for p in artifact.parameters
    ]
    packed = f"_pack_{name}({', '.join([*values, *['0'] * binary.num_extra])})"
    kept = "".join(f"_{key}, " for key in made)
    grid = "" if artifact.llvm else f", {_grid(artifact)}, {_first_tensor(artifact)}.get_device()"
    yield f"    return {packed}, ({kept}){grid}"


def _first_tensor(artifact: Artifact) -> str:
    return next(p.source for p in artifact.parameters if p.is_tensor and not p.is_made_at_launch)


def _device_checks(artifact: Artifact, binary: Binary) -> Iterator[str]:
    """What binaries ask for beyond the checks of saved modules, whose compiler sees the values."""
    tensors = [p.source for p in artifact.parameters if p.is_tensor and not p.is_made_at_launch]
    wanted: list[tuple[str, object]] = [
        (f"{tensors[0]}.device.type", "cpu" if artifact.llvm else "cuda")
    ]
    if not artifact.llvm:
        wanted += [(f"{source}.data_ptr() % {_ALIGNED}", 0) for source in tensors]
    for name, text in artifact.constexprs:
        wanted.append((_inlined(text, artifact), binary.constants[name]))
    for asked, expected in wanted:
        if asked != repr(expected):
            yield f"{REQUIRE}({asked!r}, {asked}, {expected!r})"


class _Inline(ast.NodeTransformer):
    """Replaces parameters by where they come from, and functions by the launcher's."""

    def __init__(self, artifact: Artifact) -> None:
        self._sources = {p.name: p.source for p in artifact.parameters}
        self._sources["num_sms"] = f"{LAUNCHER}.num_sms({_first_tensor(artifact)})"
        self._sources |= {name: f"{LAUNCHER}.{name}" for name in ("cdiv", "next_power_of_2")}

    @override
    def visit_Name(self, node: ast.Name) -> ast.AST:
        source = self._sources.get(node.id, node.id)
        return ast.parse(source, mode="eval").body


def _inlined(text: str, artifact: Artifact) -> str:
    """An expression over parameters as one over the values at the launch point."""
    return ast.unparse(_Inline(artifact).visit(ast.parse(text, mode="eval")))


def _grid(artifact: Artifact) -> str:
    sizes = [_inlined(size, artifact) for size in artifact.grid]
    return f"({', '.join([*sizes, '1', '1'][:3])})"


def _files(kernel: Kernel[..., Any], codes: Sequence[Code]) -> dict[str, bytes]:
    """Everything in a package, by its path there."""
    source = Path(str(kernel.definition.split.source.file))
    texts = {
        "__init__.py": f'"""{_about(kernel)}"""\n\nfrom .{kernel.name} import {kernel.name}\n\n'
        f"__all__ = [{kernel.name!r}]\n",
        f"{kernel.name}.py": _module_text(kernel, codes),
        f"{LAUNCHER}.py": _LAUNCHER_FILE.read_text(encoding="utf-8"),
        "source/kernel.txt": kernel.definition.split.source.text,
        **{f"source/{code.name}{code.readable[0]}": code.readable[1] for code in codes},
    }
    files = {name: text.encode() for name, text in texts.items()}
    entries: list[dict[str, Any]] = []
    for code in codes:
        path = f"binaries/{code.name}{code.binary.suffix}"
        files[path] = code.binary.content
        entries.append({**code.entry, "binary": path})
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "kernel": kernel.name,
        "from": source.name,
        "tilesmith": _version(),
        "toolchain": dict(toolchain()),
        "code": entries,
        "files": {name: sha256(content).hexdigest() for name, content in sorted(files.items())},
    }
    manifest["hash"] = manifest_hash(json.loads(json.dumps(manifest)))
    return {**files, MANIFEST: (json.dumps(manifest, indent=2) + "\n").encode()}


def _version() -> str:
    try:
        return version("tilesmith")
    except PackageNotFoundError:
        return "unknown"


def _about(kernel: Kernel[..., Any]) -> str:
    return f"{kernel.name}, exported by tilesmith {_version()}; {MANIFEST} says for what."


def _module_text(kernel: Kernel[..., Any], codes: Sequence[Code]) -> str:
    """The module that users call: checks, one reader for each code, host code."""
    host = codes[0].host
    functions: dict[str, str] = {}
    for code in codes:
        # The longer of two texts of a check also knows runtime sizes.
        for name, text in code.checks.functions.items():
            functions[name] = max(functions.get(name, ""), text, key=len)
    imports = ["import struct", "import torch", *host.imports.splitlines()]
    listed = "".join(f"_{code.name}, " for code in codes)
    head = "\n".join([*sorted(set(imports)), "", f"from . import {LAUNCHER}"])
    parts = [
        f'"""{_about(kernel)}"""\n\n{head}',
        *([host.constants] if host.constants else []),
        *functions.values(),
        *(code.reader for code in codes),
        f"_launch = {LAUNCHER}.load(__file__, ({listed.strip()}))",
        host.function,
    ]
    return "\n\n\n".join(parts) + "\n"
