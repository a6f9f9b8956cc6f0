"""Which pairs of features random programs have had, and which of several programs has rare ones.

A feature is an op, a type, a kind of mask, a nest of loops or the structure of a program. Pairs of
an op with each of the others are counted, and pairs of a mask with each type.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from tests.fuzzing.block_statements import Branch, Repeat, TileLoop, Until
from tests.fuzzing.program import Program, Statement, Value

KINDS = ("op x type", "op x mask", "op x nest", "op x structure", "type x mask", "mask x nest")
MOVED = ("gather", "shifted", "turned", "halved", "wrapped")
"""Positions that are not next to each other as the elements of a tile are."""
Pair = tuple[str, str, str]
"""A kind of ``KINDS`` and two features."""


def pairs_of(program: Program) -> set[Pair]:
    """All pairs of a program."""
    structure = _structure(program)
    found: set[Pair] = set()
    for loop in program.loops:
        for nest, statement in _nested(loop.body, loop.kind):
            op, mask = _op(statement), _mask(statement)
            found |= {(KINDS[1], op, mask), (KINDS[2], op, nest), (KINDS[5], mask, nest)}
            found |= {(KINDS[3], op, part) for part in structure}
            for dtype in _types(statement):
                found |= {(KINDS[0], op, dtype), (KINDS[4], dtype, mask)}
    return found


def _nested(statements: Iterable[Statement], nest: str) -> Iterator[tuple[str, Statement]]:
    for statement in statements:
        yield nest, statement
        word = _word(statement)
        inside = (*getattr(statement, "body", ()), *getattr(statement, "orelse", ()))
        yield from _nested(inside, f"{nest}>{word}")


def _word(statement: Statement) -> str:
    if isinstance(statement, TileLoop):
        ends = "tile" if "." in statement.end else "data" if statement.end[0] == "v" else "size"
        return f"tile({ends})"
    words: dict[type[Statement], str] = {Repeat: "range", Branch: "if", Until: "while"}
    return words.get(type(statement), "")


def _op(statement: Any) -> str:
    name = type(statement).__name__.lower()
    for part in ("function", "kind", "form", "atomic", "head"):
        name += f" {getattr(statement, part)}" if getattr(statement, part, "") else ""
    return name.replace("torch.", "")


def _types(statement: Any) -> set[str]:
    values = [getattr(statement, field.name) for field in fields(statement)]
    listed = [x for value in values for x in (value if isinstance(value, tuple) else (value,))]
    return {str(x.dtype).removeprefix("torch.") for x in listed if isinstance(x, Value)}


def _mask(statement: Any) -> str:
    """How lanes are left out, and how places are found."""
    positions = {p.kind for p in getattr(statement, "positions", ())}
    parts = [kind for kind in MOVED if kind in positions]
    parts += ["mask"] if getattr(statement, "mask", None) is not None else []
    if parts:
        return "+".join(parts)
    result = getattr(statement, "result", None) or getattr(statement, "operand", None)
    axes = result.axes if isinstance(result, Value) else getattr(statement, "axes", ())
    has_tile = any(axis[0] in "tuwb" for axis in axes)
    has_whole = any(axis[0] not in "tuwb" for axis in axes)
    if has_tile and has_whole:
        return "tile and whole"
    return "tile" if has_tile else "whole" if has_whole else "scalar"


def _structure(program: Program) -> list[str]:
    parts = ["static" if program.static_shapes else "dynamic", f"{len(program.loops)} loops"]
    parts += ["barrier"] if any(loop.is_after_barrier for loop in program.loops) else []
    parts += ["fixed block"] if any(loop.block_size for loop in program.loops) else []
    parts += ["bounds"] if any(b or e for loop in program.loops for *_, b, e in loop.axes) else []
    parts += ["in place"] if any(x.is_output and x.is_data for x in program.tensors) else []
    parts += ["shared memory"] if any(spec.shares for spec in program.tensors) else []
    parts += [f"{loop.kind} {len(loop.axes)}" for loop in program.loops]
    return parts + sorted({f"layout {spec.layout}" for spec in program.arguments})


class Coverage:
    """How many programs had each pair."""

    def __init__(self, counts: Iterable[tuple[str, str, str, int]] = ()) -> None:
        self.counts = Counter({(kind, one, two): count for kind, one, two, count in counts})

    def rarity(self, pairs: Iterable[Pair]) -> float:
        """How much there is to learn from a program: pairs that were seen often count little."""
        return sum(1 / (1 + self.counts[pair]) for pair in pairs)

    def add(self, pairs: Iterable[Pair]) -> None:
        """Count a program."""
        self.counts.update(pairs)

    def rows(self) -> list[tuple[str, str, str, int]]:
        """All pairs, as data."""
        return [(*pair, count) for pair, count in sorted(self.counts.items())]

    def table(self) -> str:
        """For each kind: pairs seen, of how many that its features could make, and the rarest."""
        lines = [f"{'pairs':16} {'seen':>6} {'crossed':>8} {'5 times':>8}  rarest"]
        for kind in KINDS:
            own = {pair: count for pair, count in self.counts.items() if pair[0] == kind}
            ones, twos = ({pair[place] for pair in own} for place in (1, 2))
            often = sum(count >= 5 for count in own.values())
            rarest = sorted(own, key=lambda pair: (own[pair], pair))[:2]
            text = ", ".join(f"{one} / {two}" for _, one, two in rarest)
            total = len(ones) * len(twos)
            lines.append(f"{kind:16} {len(own):>6} {total:>8} {often:>8}  {text}")
        return "\n".join(lines)

    def by_op(self) -> str:
        """One line for each op: programs, types, masks, nests and structures it was seen with."""
        ops = sorted({pair[1] for pair in self.counts if pair[0] == KINDS[0]})
        lines = [f"{'op':32} {'types':>5} {'masks':>5} {'nests':>5} {'structures':>10}"]
        for op in ops:
            seen = [
                len({pair[2] for pair in self.counts if pair[:2] == (kind, op)})
                for kind in KINDS[:4]
            ]
            lines.append(f"{op:32} {seen[0]:>5} {seen[1]:>5} {seen[2]:>5} {seen[3]:>10}")
        return "\n".join(lines)


def read_coverage(path: Path) -> Coverage:
    """What earlier runs have covered; nothing if there is no file."""
    return Coverage(map(tuple, json.loads(path.read_text())) if path.exists() else ())
