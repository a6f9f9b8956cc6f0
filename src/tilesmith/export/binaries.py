"""Artifacts to files that run without a compiler: a shared library, a cubin or an hsaco."""

from __future__ import annotations

import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tilesmith.exc as errors
from tilesmith.artifacts import Artifact
from tilesmith.backends.triton.build import CompiledInfo, compile_artifact, evaluate_constexprs
from tilesmith.export._cpu import OPENMP
from tilesmith.export._gpu import DESCRIPTOR
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
_NUMBER_CODES = {
    **{"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I"},
    **{"u64": "Q", "f32": "f", "f64": "d", "bool": "?"},
}
_NUMBERS = frozenset(_NUMBER_CODES.values())
_DRIVER_TYPES = {8: 10, 9: 8, 10: 9}
"""Element types of descriptors that the driver numbers otherwise than the hardware does."""


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


def build(artifact: Artifact, scalars: Mapping[str, int]) -> Binary:
    """The binary of an artifact; ``scalars`` are runtime values that constants are made from."""
    if artifact.llvm:
        return _shared_library(artifact)
    return _gpu_binary(artifact, scalars)


def cannot(function: str, problem: str, fix: str = "") -> errors.BaseError:
    """An error that says why a kernel does not become a package."""
    return errors.CannotExport(function=function, problem=problem, fix=fix)


def _cannot(artifact: Artifact, problem: str, fix: str) -> errors.BaseError:
    return cannot(artifact.kernel_name, f"{artifact.target}: {problem}", fix)


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


def _gpu_binary(artifact: Artifact, scalars: Mapping[str, int]) -> Binary:
    try:
        compiled = compile_artifact(artifact, scalars=scalars)
    except ImportError:
        raise _cannot(
            artifact, "it needs triton", "install triton; only exporting needs it"
        ) from None
    if compiled.scratch_bytes:
        raise _cannot(artifact, "its code needs scratch memory", "export another config")
    ptx = compiled.assembly.get("ptx")
    threads = compiled.num_warps * artifact.target.warp_size
    name, found = _read_amdgcn(compiled.assembly["amdgcn"]) if ptx is None else _read_ptx(ptx)
    layout = "".join(_codes(artifact))
    expected = [struct.calcsize(f"={code}") if code in _NUMBERS else 0 for code in layout]
    num_extra = len(found) - len(expected)
    if num_extra < 0 or found[: len(expected)] != expected or set(found[len(expected) :]) - {8}:
        raise errors.InternalError(problem=f"parameters of {name} take {found}: not as declared")
    entry = {
        "kind": "hip" if ptx is None else "cuda", "entry": name, "threads": threads,
        "layout": layout + "Q" * num_extra, "shared_bytes": compiled.shared_bytes,
        "arch": artifact.target.arch, "descriptors": [*_descriptors(artifact, compiled)],
        "is_cooperative": bool(artifact.options.get("launch_cooperative_grid")),
        "cluster": artifact.options.get("num_ctas", 1),
    }  # fmt: skip
    constants = evaluate_constexprs(artifact, artifact.target, scalars)
    suffix = ".hsaco" if ptx is None else ".cubin"
    return Binary(compiled.binary, suffix, layout, entry, num_extra, constants)


def _codes(artifact: Artifact) -> Iterator[str]:
    """How each argument is packed; a descriptor is followed by its sizes and strides."""
    for parameter in artifact.parameters:
        code = "Q" if parameter.is_tensor else _NUMBER_CODES.get(parameter.dtype)
        if code is None:
            problem = f"its parameter {parameter.name} has type {parameter.dtype}"
            raise _cannot(artifact, problem, "pass the number in a tensor")
        yield code
    for description in artifact.descriptions:
        rank = len(description.block)
        yield DESCRIPTOR + "i" * rank + "q" * rank


def _descriptors(artifact: Artifact, compiled: CompiledInfo) -> Iterator[dict[str, Any]]:
    """What the driver must know to describe tensors to the copy engine, as the code wants them."""
    for description, made in zip(artifact.descriptions, compiled.descriptors, strict=True):
        if made["fp4_padded"]:
            problem = "its descriptors pad numbers of 4 bits"
            raise _cannot(artifact, problem, "export a config with pointers")
        kind = made["elem_type"]
        yield {
            "type": _DRIVER_TYPES.get(kind, kind),
            "element_bytes": made["elem_size"],
            "swizzle": made["swizzle"],
            "box": [*made["block_size"]],
            "strides": [*description.strides],
        }


def _read_ptx(ptx: str) -> tuple[str, list[int]]:
    """The name of the kernel, and bytes of each parameter; 0 for a descriptor."""
    head = re.search(r"\.entry (\w+)\((.*?)\)", ptx, re.DOTALL)
    assert head is not None
    name, parameters = head.groups()
    found = re.findall(r"\.param (?:\.align \d+ )?\.[a-z](\d+) [^,]*?(\[\d+\])?(?:,|$)", parameters)
    return name, [0 if length == "[128]" else int(bits) // 8 for bits, length in found]


def _read_amdgcn(text: str) -> tuple[str, list[int]]:
    """The name of the kernel, and bytes of each parameter."""
    about = text.partition(".amdgpu_metadata")[2].partition(".end_amdgpu_metadata")[0]
    name = re.search(r"^\s+\.name:\s+(\w+)", about, re.MULTILINE)
    assert name is not None
    listed = re.findall(r"\.size:\s+(\d+)\s+\.value_kind:\s+(\w+)", about)
    return name.group(1), [int(size) for size, kind in listed if not kind.startswith("hidden")]
