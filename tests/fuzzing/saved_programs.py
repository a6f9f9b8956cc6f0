"""Programs as data in a file: they stay the same when the grammar that grew them changes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tests.fuzzing import (
    block_statements,
    bounded_sums,
    combinations,
    draws,
    exchanges,
    helper_calls,
    program,
    rearrangements,
    rotations,
    statements,
)
from tests.fuzzing.program import Program

MODULES = (
    program, statements, block_statements, bounded_sums, combinations, rearrangements, helper_calls,
    rotations, exchanges, draws,
)  # fmt: skip
CLASSES = {
    name: thing
    for module in MODULES
    for name, thing in vars(module).items()
    if isinstance(thing, type) and is_dataclass(thing)
}


def to_data(thing: Any) -> Any:
    """Dataclasses become objects with a ``class``, types their names."""
    if is_dataclass(thing) and not isinstance(thing, type):
        parts = {field.name: to_data(getattr(thing, field.name)) for field in fields(thing)}
        return {"class": type(thing).__name__, **parts}
    if isinstance(thing, torch.dtype):
        return {"type": str(thing).removeprefix("torch.")}
    if isinstance(thing, (tuple, list)):
        return [to_data(part) for part in thing]
    if isinstance(thing, Mapping):
        return {"names": dict(thing)}
    return thing


def from_data(data: Any) -> Any:
    """The other way round; lists become tuples."""
    if isinstance(data, list):
        return tuple(from_data(part) for part in data)
    if not isinstance(data, dict):
        return data
    if "type" in data:
        return getattr(torch, data["type"])
    if "names" in data:
        return data["names"]
    parts = {name: from_data(part) for name, part in data.items() if name != "class"}
    return CLASSES[data["class"]](**parts)


def saved(members: Sequence[Program], index: int, mode: str, note: str) -> dict[str, Any]:
    """A program and the shapes it is called with, one after the other, as data."""
    shapes = [
        {"sizes": dict(member.sizes), "seed": member.seed, "data": member.data}
        for member in members
    ]
    head = {"note": note, "index": index, "mode": mode, "source": members[0].source().splitlines()}
    return {**head, "members": shapes, "program": to_data(members[0])}


def restored(data: Mapping[str, Any]) -> list[Program]:
    """The members that ``saved`` was given."""
    first: Program = from_data(data["program"])
    return [
        replace(first, sizes=m["sizes"], seed=m["seed"], data=m["data"]) for m in data["members"]
    ]


def read_saved(path: Path) -> dict[str, Any]:
    """What ``saved`` has made, from a file."""
    return json.loads(path.read_text())


def write_saved(path: Path, data: Mapping[str, Any]) -> None:
    """Write it so that a change of it can be read: statements on lines of their own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {name: json.dumps(part) for name, part in data.items()}
    parts["source"] = json.dumps(data["source"], indent=1)
    lines = ",\n".join(f"{json.dumps(name)}: {part}" for name, part in parts.items())
    path.write_text("{\n" + lines + "\n}\n")
