"""Jobs and what they need as bytes: files that a job names travel with it, to another machine.

Both ends are ours, in one cluster: as between parent and child, pickles come from nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from tilesmith.lab.workload.binding import Binding
from tilesmith.tune.jobs import CheckJob, PrepareJob, Program, ReferenceJob

Move = Callable[[Path], Path]
Files = Mapping[str, bytes]
"""Content by name. Names are relative, with slashes."""


@dataclass(frozen=True)
class Facts:
    """What a worker says about itself."""

    node: str
    device: str
    target: Any
    """A ``Target``."""
    toolchain: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Answer:
    """What became of a job on another machine."""

    reply: Any
    """Or the ``ChildError`` that its process ended with."""
    num_starts: int
    """Of that process: what an earlier one knew is lost."""


def moved(job: Any, move: Move) -> Any:
    """A job with other paths."""
    if isinstance(job, PrepareJob):
        return replace(
            job,
            workload=move(job.workload),
            expected=job.expected and move(job.expected),
            reference=job.reference and _moved_reference(job.reference, move),
        )
    if isinstance(job, CheckJob):
        reference = job.reference and _moved_reference(job.reference, move)
        return CheckJob(_moved_program(job.program, move), reference)
    return job


def _moved_program(program: Program, move: Move) -> Program:
    return replace(program, binding=_moved_binding(program.binding, move))


def _moved_reference(job: ReferenceJob, move: Move) -> ReferenceJob:
    return replace(job, binding=_moved_binding(job.binding, move))


def _moved_binding(binding: Binding, move: Move) -> Binding:
    extra = binding.extra_storages
    return binding if extra is None else replace(binding, extra_storages=move(extra))


def paths_in(job: Any) -> list[Path]:
    """The files that a job names."""
    found: list[Path] = []

    def note(path: Path) -> Path:
        found.append(path)
        return path

    moved(job, note)
    return list(dict.fromkeys(found))


def parcel_name(path: Path) -> str:
    """What a file is called on another machine."""
    return f"{sha256(str(path).encode()).hexdigest()[:16]}-{path.name}"


def read_folder(folder: Path) -> dict[str, bytes]:
    """All files below a folder, but for locks."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in _files_below(folder)
        if path.suffix != ".lock"
    }


def _files_below(folder: Path) -> Iterator[Path]:
    yield from (path for path in sorted(folder.rglob("*")) if path.is_file())


def write_folder(folder: Path, files: Files) -> None:
    """Put files below a folder that are not there; each appears whole."""
    for name, content in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"a file outside of its folder: {name!r}")
        if path.exists():
            continue
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(content)
        part.chmod(0o600)
        part.replace(path)
