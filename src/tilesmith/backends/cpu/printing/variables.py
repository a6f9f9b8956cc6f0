"""Scalars with names of their own, and how they change in loops and branches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tilesmith.backends.cpu.printing.expressions import Expr
from tilesmith.backends.cpu.printing.scene import Scene
from tilesmith.ir.operation import Region
from tilesmith.ir.ops.control_flow import Loop, While
from tilesmith.ir.values import Value


class Variables:
    """The scalars of one grid that have a line of their own."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._lines = scene.lines
        self._names = scene.names
        self._own: set[Value] = set()

    def add(self, values: Iterable[Value]) -> None:
        """Note scalars that are named already."""
        self._own.update(values)

    def define(self, value: Value, name: str) -> None:
        """Let a scalar go by a name from here on."""
        self._names.share(value, name)
        self._scene.scalars[value] = Expr(name)
        self._own.add(value)

    def start(self, op: Loop | While, carried: Sequence[Value]) -> list[str]:
        """Variables for carried scalars, with what they begin as."""
        found: list[str] = []
        for init, arg, result in zip(op.init, carried, op.results):
            if arg.tile.rank:
                continue
            first = self._scene.scalars[init]
            is_last_use = self._scene.users[init] == [op] and init in self._own
            name = first.text if is_last_use else self._names.of(arg)
            if not is_last_use:
                self._lines.quote(self._scene.sources.get(init, ()), is_new=True)
                self._lines.put(f"{name} = {first}")
            self.define(arg, name)
            self.define(result, name)
            found.append(name)
        return found

    def assign(self, names: Sequence[str], region: Region) -> None:
        """Give variables the values that a region yields, all of them made from the old ones."""
        yielded = [value for value in region.yielded if not value.tile.rank]
        rows = [
            (name, self._scene.scalars[value].text, self._scene.sources.get(value, ()))
            for name, value in zip(names, yielded)
        ]
        rows = [row for row in rows if row[0] != row[1]]
        later = [" ".join(new for _, new, _ in rows[n + 1 :]) for n in range(len(rows))]
        if any(re.search(rf"\b{name}\b", rest) for (name, _, _), rest in zip(rows, later)):
            targets, values, sources = zip(*rows)
            rows = [(", ".join(targets), ", ".join(values), sum(sources, ()))]
        for name, new, lines in rows:
            self._lines.quote(lines)
            self._lines.put(f"{name} = {new}")
