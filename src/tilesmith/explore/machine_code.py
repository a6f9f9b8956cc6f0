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
from tilesmith.backends.cpu.emission.kernel import emit_kernel
from tilesmith.backends.cpu.line_marks import Marks
from tilesmith.backends.cpu.lowering.kernel import lower_kernel
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.explore.origins import (
    Column,
    Source,
    column_of_amdgcn,
    column_of_assembly,
    column_of_ptx,
    column_of_sass,
)
from tilesmith.ir.function import Function
from tilesmith.runtime.native.machine_code import code_maker
from tilesmith.schedule.schedule import Schedule

_USE = re.compile(r"\bREG:(\d+) STACK:(\d+)\b.*?\bLOCAL:(\d+)")
_AMD_USE = re.compile(r"^; (TotalNumVgprs|ScratchSize): (\d+)$", re.MULTILINE)
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
    if not artifact.source:
        return MachineCode({})
    compiled = compile_artifact(artifact, scalars=sizes)
    if "ptx" not in compiled.assembly:
        text = compiled.assembly.get("amdgcn", "")
        columns = {"AMDGCN": column_of_amdgcn(text, emitted)}
        use = {name: int(number) for name, number in _AMD_USE.findall(text)}
        registers, spilled = use.get("TotalNumVgprs"), use.get("ScratchSize")
        return MachineCode(columns, registers, spilled, compiled.shared_bytes)
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


def make_assembly(
    function: Function, schedule: Schedule, artifact: Artifact, source: Source
) -> MachineCode:
    """Of a kernel of a CPU: emitted once more with marks, which become debug locations."""
    marks = Marks()
    marked = emit_kernel(marks.put(lower_kernel(function, schedule)), artifact.name)
    text = code_maker(artifact.target).make_assembly(with_locations(marked))
    places = [source.place({r for loc in found for r in source.rows(loc)}) for found in marks.lines]
    return MachineCode({"assembly": column_of_assembly(text, places)})


def with_locations(text: str) -> str:
    """LLVM IR whose comments ``; mark N`` have become debug locations at line N + 1."""
    # Numbers above those that the code uses itself.
    base = 1 + max((int(number) for number in re.findall(r"!(\d+)", text)), default=-1)
    unit, file, kind = base, base + 3, base + 4
    metadata = [
        f"distinct !DICompileUnit(language: DW_LANG_C, file: !{file}, isOptimized: true, "
        "runtimeVersion: 0, emissionKind: LineTablesOnly)",
        '!{i32 2, !"Debug Info Version", i32 3}',
        '!{i32 2, !"Dwarf Version", i32 4}',
        '!DIFile(filename: "kernel", directory: "/")',
        f"!DISubroutineType(types: !{base + 5})",
        "!{null}",
    ]
    lines: list[str] = []
    known: dict[tuple[int, int], int] = {}
    scope, mark = 0, 0
    for line in text.split("\n"):
        shown = line
        if line.startswith("  ; mark "):
            mark = int(line.split()[-1]) + 1
            continue
        if line.startswith("define "):
            scope, mark = base + len(metadata), 0
            metadata.append(
                f'distinct !DISubprogram(name: "f", scope: !{file}, file: !{file}, line: 1, '
                f"type: !{kind}, spFlags: DISPFlagDefinition, unit: !{unit})"
            )
            shown = line.replace(" {", f" !dbg !{scope} {{")
        elif line.startswith("  "):
            if (scope, mark) not in known:
                known[scope, mark] = base + len(metadata)
                metadata.append(f"!DILocation(line: {mark}, scope: !{scope})")
            shown = f"{line}, !dbg !{known[scope, mark]}"
        lines.append(shown)
    named = [f"!{number} = {item}" for number, item in enumerate(metadata, base)]
    flags = [f"!llvm.dbg.cu = !{{!{unit}}}", f"!llvm.module.flags = !{{!{unit + 1}, !{unit + 2}}}"]
    return "\n".join([*lines, *flags, *named, ""])


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
