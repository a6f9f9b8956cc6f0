"""compute-sanitizer: where it is, how it is started, and what its log says."""

from __future__ import annotations

import re
import shutil
import site
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

NAME = "compute-sanitizer"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_SUMMARY = re.compile(r"=+ (?:ERROR|RACECHECK) SUMMARY: (\d+)")
_MARK = "========= "
_PLACE = re.compile(r"=+ +at (\S+)")
_KERNEL = re.compile(r"\bat (\w+)\+0x")
_CHATTER = ("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY", "LEAK SUMMARY", "Target")


@dataclass(frozen=True)
class Summary:
    """One log."""

    errors: int | None
    """None where the tool did not come to its end."""
    first: str = ""
    """What it says first, and in which kernel."""
    kernels: tuple[str, ...] = ()
    """All that it names, each once."""


def find_sanitizer() -> str | None:
    """The program, where machines with CUDA, wheels of NVIDIA and Triton have it."""
    found = shutil.which(NAME)
    return found or next((str(path) for path in _candidates() if path.is_file()), None)


def _candidates() -> Iterator[Path]:
    for root in sorted(Path("/usr/local").glob("cuda*")):
        yield root / "bin" / NAME
        yield root / NAME / NAME
    yield from sorted(Path("/opt/nvidia").glob(f"**/{NAME}"))
    for folder in {*site.getsitepackages(), *sys.path}:
        root = Path(folder)
        yield root / "triton" / "backends" / "nvidia" / "bin" / NAME
        yield from sorted(root.glob(f"nvidia/**/bin/{NAME}"))
        yield from sorted(root.glob(f"nvidia/**/{NAME}"))


def command(sanitizer: str, tool: str, log: Path, program: Sequence[str]) -> list[str]:
    """What starts a program under a tool."""
    options = ["--tool", tool, "--log-file", str(log), "--print-limit", "2000"]
    # Compilers that it starts run nothing on the GPU.
    return [sanitizer, *options, "--target-processes", "application-only", *program]


def read_log(text: str) -> Summary:
    """What a tool has found."""
    counts = [int(match.group(1)) for match in _SUMMARY.finditer(text)]
    lines = [line[len(_MARK) :] for line in text.splitlines() if line.startswith(_MARK)]
    said = [line.strip() for line in lines if line.strip() and not line.startswith(" ")]
    said = [line for line in said if not line.startswith(_CHATTER)]
    place, names = _PLACE.search(text), dict.fromkeys(_KERNEL.findall(text))
    first = f"{said[0]} at {place.group(1)}" if said and place else "".join(said[:1])
    return Summary(sum(counts) if counts else None, first, tuple(names))
