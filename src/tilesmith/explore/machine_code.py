"""What a toolchain makes of emitted code: PTX and SASS, or assembly, and what it takes of a device.

Nothing runs. Disassembly needs nvdisasm, which Triton brings along; without it there is no SASS.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from tilesmith.artifacts import Artifact
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.explore.origins import NOWHERE, Column, column_of_ptx, column_of_sass
from tilesmith.runtime.native.machine_code import code_maker

_USE = re.compile(r"\bREG:(\d+) STACK:(\d+)\b.*?\bLOCAL:(\d+)")
TOOL_SECONDS = 60


@dataclass(frozen=True)
class MachineCode:
    """Texts by name, and what the toolchain says of them."""

    columns: Mapping[str, Column]
    registers: int | None = None
    """Of each thread, as assembled."""
    spilled_bytes: int | None = None
    shared_bytes: int | None = None
    notes: tuple[str, ...] = field(default=())
    """What is missing, and why."""


def make_machine_code(artifact: Artifact, emitted: Column, sizes: Mapping[str, int]) -> MachineCode:
    """Of an artifact whose readable text is the emitted column."""
    if artifact.llvm:
        text = code_maker(artifact.target).make_assembly(artifact.llvm)
        lines = [line.replace("\t", "  ") for line in text.rstrip("\n").split("\n")]
        return MachineCode({"assembly": Column(lines, [NOWHERE] * len(lines))})
    if not artifact.source:
        return MachineCode({})
    compiled = compile_artifact(artifact, scalars=sizes)
    if "ptx" not in compiled.assembly:
        lines = compiled.assembly.get("amdgcn", "").split("\n")
        columns = {"AMDGCN": Column(lines, [NOWHERE] * len(lines))}
        return MachineCode(columns, shared_bytes=compiled.shared_bytes)
    ptx = column_of_ptx(compiled.assembly["ptx"], emitted)
    with tempfile.TemporaryDirectory(prefix="tilesmith_") as folder:
        path = Path(folder) / "code.cubin"
        path.write_bytes(compiled.binary)
        sass = _ask_tool("nvdisasm", "-gi", "-c", str(path))
        use = _USE.search(_ask_tool("cuobjdump", "-res-usage", str(path)))
    registers, stack, local = map(int, use.groups()) if use else (None, 0, 0)
    columns = {"PTX": ptx, **({"SASS": column_of_sass(sass, emitted)} if sass else {})}
    notes = () if sass else ("no SASS: nvdisasm is not there or refused the code",)
    spilled = None if registers is None else stack + local
    return MachineCode(columns, registers, spilled, compiled.shared_bytes, notes)


def _ask_tool(name: str, *arguments: str) -> str:
    """What one of Triton's tools prints; nothing where it is missing or fails."""
    spec = find_spec("triton")
    if spec is None or spec.origin is None:
        return ""
    tool = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / name
    try:
        done = subprocess.run(
            [str(tool), *arguments], capture_output=True, text=True, timeout=TOOL_SECONDS,
            check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
