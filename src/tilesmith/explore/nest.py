"""The schedule as a loop nest: what is parallel, what runs in turn, and what each turn moves.

One line for each loop, access, product and reduction; elementwise work of one of the user's lines
is one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tilesmith.explore.origins import NOWHERE, Column, Source
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Grid, If, Loop, While, Yield
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.traversal import definitions
from tilesmith.ir.types import TileType, Value
from tilesmith.schedule.schedule import LoopOptions, Schedule

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//"}
_CALLS = {"minimum": "min", "maximum": "max"}
MAX_NAMED = 6


@dataclass
class Nest:
    """Writes the lines of one function under its schedule."""

    function: Function
    schedule: Schedule
    sizes: Mapping[str, int]
    """Values of runtime sizes, by parameter name."""
    source: Source
    choices: Mapping[str, Any]
    """What a config says of the launch as a whole."""
    _lines: list[str] = field(default_factory=list[str])
    _places: list[int] = field(default_factory=list[int])

    def column(self) -> Column:
        """All lines."""
        self._defined_by = definitions(self.function.body)
        told = (f"{name}={value}" for name, value in self.choices.items())
        self._write(", ".join([f"# {self.schedule.target}", *told]), 0)
        self._region(self.function.body, 0)
        return Column(self._lines, self._places)

    def _write(self, text: str, depth: int, ops: Sequence[Operation] = ()) -> None:
        rows = {row for op in ops for row in self.source.rows(op.loc)}
        self._lines.append("  " * depth + text)
        self._places.append(self.source.place(rows) if ops else NOWHERE)

    def _region(self, region: Region, depth: int) -> None:
        run: list[Operation] = []
        for op in region.ops:
            if self._is_arithmetic(op) and (not run or run[0].loc == op.loc):
                run.append(op)
                continue
            self._arithmetic(run, depth)
            run = [op] if self._is_arithmetic(op) else []
            if not run:
                self._op(op, depth)
        self._arithmetic(run, depth)

    def _is_arithmetic(self, op: Operation) -> bool:
        return Trait.PURE in op.traits and not isinstance(op, Dot) and op.name not in _COMBINING

    def _arithmetic(self, ops: Sequence[Operation], depth: int) -> None:
        """What is computed lane by lane; indices and views are part of accesses."""
        done = [op for op in ops if isinstance(op, Elementwise) and op.result.tile.rank]
        work = [op for op in done if not op.result.tile.dtype.is_integer]
        names = list(dict.fromkeys(op.fn for op in work))
        if names:
            shown = ", ".join(names[:MAX_NAMED]) + (", ..." if len(names) > MAX_NAMED else "")
            widest = max((op.result for op in work), key=self._elements)
            self._write(f"{shown}  {self._tile(widest)}", depth, work)

    def _op(self, op: Operation, depth: int) -> None:
        if isinstance(op, (Grid, Loop)):
            for number, text in enumerate(self._headers(op)):
                self._write(text, depth + number, [op])
            self._region(op.body, depth + len(op.blocks))
        elif isinstance(op, If):
            self._write("if", depth, [op])
            self._region(op.then, depth + 1)
            if len(op.otherwise.ops) > 1:
                self._write("else", depth, [op])
                self._region(op.otherwise, depth + 1)
        elif isinstance(op, While):
            self._write("while", depth, [op])
            self._region(op.condition, depth + 1)
            self._region(op.body, depth + 1)
        elif not isinstance(op, Yield):
            self._write(self._text(op), depth, [op])

    def _headers(self, op: Grid | Loop) -> Iterator[str]:
        steps = iter(op.steps if isinstance(op, Loop) else ())
        kind = "parallel for" if isinstance(op, Grid) else "for"
        for axis, block in enumerate(op.blocks):
            step = str(self.schedule.symbols[block]) if block else "1"
            if not block and isinstance(op, Loop):
                step = self._scalar(next(steps))
            begin, end = self._scalar(op.begins[axis]), self._scalar(op.ends[axis])
            name = block or op.body.args[axis].name
            by = f" by {step}" if step != "1" else ""
            told = ", ".join([*_turns(begin, end, step), *self._loop_notes(op, axis)])
            yield f"{kind} {name} in {begin}:{end}{by}:" + (f"  # {told}" if told else "")

    def _loop_notes(self, op: Grid | Loop, axis: int) -> list[str]:
        if isinstance(op, Loop):
            options = self.schedule.loops.get(op.slot)
            return [] if options is None or axis else _loop_options(options)
        grid = self.schedule.grids.get(op.slot)
        if grid is None or len(op.blocks) < 2 or grid.order[:1] != (axis,):
            return []
        grouping = [f"{grid.l2_grouping} at a time for L2"] if grid.l2_grouping > 1 else []
        return ["varies fastest", *grouping]

    def _text(self, op: Operation) -> str:
        if isinstance(op, Load):
            return f"load {op.tensor.name}  {self._tile(op.result)}{self._access(op)}"
        if isinstance(op, (Store, Atomic)):
            verb = "store" if isinstance(op, Store) else f"atomic {op.kind}"
            return f"{verb} {op.tensor.name}  {self._tile(op.value)}{self._access(op)}"
        if isinstance(op, Dot):
            sides = " @ ".join(self._tile(side) for side in (op.lhs, op.rhs))
            return f"dot  {sides} -> {self._tile(op.result)}"
        kind = str(op.attributes().get("kind", ""))
        made = self._tile(op.results[0]) if op.results else ""
        tiles = (v for v in op.operand_values() if isinstance(v.type, TileType))
        taken = next(tiles, None)
        before = f"{self._tile(taken)} -> " if taken is not None and made else ""
        return f"{op.name} {kind}".rstrip() + f"  {before}{made}".rstrip()

    def _access(self, op: Load | Store | Atomic) -> str:
        table = self.schedule.atomics if isinstance(op, Atomic) else self.schedule.accesses
        options = table.get(op.slot)
        words: list[str] = []
        if options is not None:
            words += [options.indexing if options.indexing != "pointer" else ""]
            words += [f"evict {options.eviction}" if options.eviction else ""]
            words += [options.cache_modifier]
        words += ["masked"] if op.mask is not None else []
        told = ", ".join(filter(None, words))
        return f"  # {told}" if told else ""

    def _elements(self, value: Value) -> int:
        return prod(self.schedule.physical_shape(value.tile.shape))

    def _tile(self, value: Value) -> str:
        if not isinstance(value.type, TileType):
            return ""
        sizes = "x".join(map(str, self.schedule.physical_shape(value.tile.shape)))
        return f"[{sizes}] {value.tile.dtype}" if sizes else str(value.tile.dtype)

    def _scalar(self, value: Value) -> str:
        """A bound of a loop: a number where it is known, else as it is computed."""
        op = self._defined_by.get(value)
        if isinstance(op, Full):
            return str(int(op.value))
        if isinstance(op, BlockSize):
            return str(self.schedule.symbols[op.block])
        if isinstance(op, Elementwise):
            parts = [self._scalar(arg) for arg in op.args]
            if op.fn in _SIGNS:
                return f"{parts[0]} {_SIGNS[op.fn]} {parts[1]}"
            if op.fn in _CALLS:
                return f"{_CALLS[op.fn]}({', '.join(parts)})"
        if op is not None and op.name == "cast":
            return self._scalar(next(iter(op.operand_values())))
        if value.name in self.sizes:
            return str(self.sizes[value.name])
        return value.name or "?"


_COMBINING = ("reduce", "scan", "reduce_with", "scan_with", "sort", "gather")


def _turns(begin: str, end: str, step: str) -> list[str]:
    if not (begin.isdecimal() and end.isdecimal() and step.isdecimal()):
        return []
    return [f"{-(-(int(end) - int(begin)) // int(step)):,} times"]


def _loop_options(options: LoopOptions) -> list[str]:
    named = {
        "num_stages": options.num_stages,
        "unroll": options.unroll_factor,
        "warp_specialize": options.warp_specialize,
        "flatten": options.flatten,
    }
    return [f"{name}={value}" for name, value in named.items() if value]
