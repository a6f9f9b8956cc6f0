"""Artifacts to files that run without a compiler: a shared library for a CPU, a cubin for a GPU."""

from __future__ import annotations

import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tilesmith.exc as errors
from tilesmith.artifacts import Artifact
from tilesmith.backends.triton.build import compile_artifact, evaluate_constexprs
from tilesmith.export.launcher import OPENMP
from tilesmith.runtime.device import resolve_target
from tilesmith.runtime.native.machine_code import code_maker
from tilesmith.targets import Target

LINKERS = ("cc", "gcc", "clang")
OPENMP_TABLE = """
@tilesmith_openmp = global [3 x ptr] zeroinitializer

define hidden void @GOMP_parallel(ptr %function, ptr %data, i32 %threads, i32 %flags) {
  %parallel = load ptr, ptr @tilesmith_openmp
  %is_missing = icmp eq ptr %parallel, null
  br i1 %is_missing, label %serial, label %threaded
threaded:
  call void %parallel(ptr %function, ptr %data, i32 %threads, i32 %flags)
  ret void
serial:
  call void %function(ptr %data)
  ret void
}
"""
"""The library's own OpenMP: functions that the launcher puts into the table, else one thread."""
_ASKED = """
define hidden i32 @{name}() {{
  %place = getelementptr ptr, ptr @tilesmith_openmp, i64 {position}
  %asked = load ptr, ptr %place
  %is_missing = icmp eq ptr %asked, null
  br i1 %is_missing, label %serial, label %threaded
threaded:
  %answer = call i32 %asked()
  ret i32 %answer
serial:
  ret i32 {alone}
}}
"""
_FEATURES = {
    "avx2": ("avx", "avx2", "fma", "f16c"),
    "avx512": (
        *("avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512cd", "avx512dq"),
        "avx512vl",
    ),
}
"""What LLVM takes for granted where a target is only a name."""
_CODES = {"u64": "Q", "b64": "Q", "s64": "q", "f64": "d", "f32": "f", "u16": "H", "u8": "B"} | {
    "u32": "i", "b32": "i", "s32": "i",
}  # fmt: skip


@dataclass(frozen=True)
class Binary:
    """A file with machine code, and what a launcher must know of it."""

    content: bytes
    suffix: str
    layout: str
    """How ``struct`` packs the arguments."""
    entry: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """For the manifest."""
    num_extra: int = 0
    """Pointers that the compiler added to the parameters; all of them may be null."""
    constants: Mapping[str, int] = field(default_factory=dict[str, int])
    """Compile-time parameters that depend on runtime values."""


def parse_targets(text: str) -> list[Target]:
    """The targets of a list such as ``cpu,cuda:90``; raises ValueError for an unknown one."""
    return [resolve_target(name.strip()) for name in text.split(",")]


def build(artifact: Artifact, scalars: Mapping[str, int]) -> Binary:
    """The binary of an artifact; ``scalars`` are runtime values that constants are made from."""
    if artifact.llvm:
        return _shared_library(artifact)
    return _cubin(artifact, scalars)


def _cannot(artifact: Artifact, problem: str, fix: str) -> errors.BaseError:
    name, target = artifact.kernel_name, str(artifact.target)
    return errors.CannotExport(function=name, problem=f"{target}: {problem}", fix=fix)


def _shared_library(artifact: Artifact) -> Binary:
    parameters = artifact.parameters
    floats = ["d" if p.dtype[0] in "bf" and p.dtype != "bool" else "q" for p in parameters]
    layout = "".join("q" if p.is_tensor else code for p, code in zip(parameters, floats))
    maker = code_maker(artifact.target)
    machine = _machine(maker.triple)
    if machine != f"{sys.platform} {platform.machine()}":
        raise _cannot(artifact, "there is no linker for it", "export on such a machine")
    table = OPENMP_TABLE + "".join(
        # Alone, a thread has the number 0, and there is 1.
        _ASKED.format(name=OPENMP[position], position=position, alone=position - 1)
        for position in (1, 2)
    )
    objects = [maker.make_object(artifact.llvm), maker.make_object(table)]
    content = _link(artifact, objects)
    features = _needed_features(artifact.target)
    entry = {"kind": "cpu", "machine": machine, "features": features, "entry": artifact.name}
    return Binary(content, ".so", layout, entry)


def _machine(triple: str) -> str:
    """A triple of LLVM as Python names a machine; another system's by its triple."""
    arch = triple.partition("-")[0]
    is_here = arch in (platform.machine(), {"arm64": "aarch64"}.get(platform.machine()))
    return f"{sys.platform} {platform.machine()}" if is_here else triple


def _needed_features(target: Target) -> list[str]:
    """Features that a CPU may lack though it has the architecture, without their signs."""
    listed = [name[1:] for name in target.features.split(",") if name.startswith("+")]
    needed = [name for name in listed if name.startswith(("avx", "amx", "fma", "f16c"))]
    return sorted(needed if target.features else _FEATURES.get(target.arch, ()))


def _link(artifact: Artifact, objects: Sequence[bytes]) -> bytes:
    """One shared library of objects, by the system's C compiler."""
    linker = next(filter(None, map(shutil.which, LINKERS)), None)
    if linker is None:
        wanted = f"install a C compiler ({', '.join(LINKERS)}); only exporting needs it"
        raise _cannot(artifact, "no linker is on the path", wanted)
    with tempfile.TemporaryDirectory(prefix="tilesmith_") as folder:
        files = [Path(folder) / f"{position}.o" for position in range(len(objects))]
        for path, content in zip(files, objects):
            path.write_bytes(content)
        made = Path(folder) / "linked.so"
        command = [linker, "-shared", "-o", str(made), *map(str, files), "-lm"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise _cannot(artifact, f"{linker} failed: {result.stderr.strip()[-500:]}", "")
        return made.read_bytes()


def _cubin(artifact: Artifact, scalars: Mapping[str, int]) -> Binary:
    try:
        compiled = compile_artifact(artifact, scalars=scalars)
    except ImportError:
        raise _cannot(
            artifact, "it needs triton", "install triton; only exporting needs it"
        ) from None
    ptx = compiled.assembly.get("ptx")
    if ptx is None:
        raise _cannot(artifact, "packages have no launcher for it yet", "leave the target out")
    if compiled.scratch_bytes or artifact.options.get("num_ctas", 1) != 1:
        problem = "its code needs clusters or scratch memory, which the launcher does not give it"
        raise _cannot(artifact, problem, "export another config")
    name, types, threads = _read_ptx(ptx)
    layout = "".join(_CODES[kind] for kind in types)
    expected = [_size_of(p.is_tensor, p.dtype) for p in artifact.parameters]
    found = [struct.calcsize(code) for code in layout]
    num_extra = len(found) - len(expected)
    if num_extra < 0 or found[: len(expected)] != expected or set(found[len(expected) :]) - {8}:
        raise errors.InternalError(problem=f"parameters of {name} are {types}: not as declared")
    entry = {
        "kind": "cuda", "entry": name, "threads": threads, "layout": layout,
        "shared_bytes": compiled.shared_bytes, "capability": artifact.target.capability,
        "is_cooperative": bool(artifact.options.get("launch_cooperative_grid")),
    }  # fmt: skip
    constants = evaluate_constexprs(artifact, artifact.target, scalars)
    return Binary(compiled.binary, ".cubin", layout, entry, num_extra, constants)


def _size_of(is_tensor: bool, dtype: str) -> int:
    bits = re.search(r"\d+", dtype)
    return 8 if is_tensor or bits is None else int(bits.group()) // 8


def _read_ptx(ptx: str) -> tuple[str, list[str], int]:
    """The name of the kernel, the types of its parameters, and threads of a program."""
    head = re.search(r"\.entry (\w+)\((.*?)\)\s*(.*?)\{", ptx, re.DOTALL)
    assert head is not None
    name, parameters, directives = head.groups()
    threads = re.search(r"\.reqntid (\d+)", directives)
    assert threads is not None
    return name, re.findall(r"\.param (?:\.align \d+ )?\.(\w+)", parameters), int(threads.group(1))
