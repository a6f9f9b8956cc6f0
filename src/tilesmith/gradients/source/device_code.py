"""Regions as statements: loops, branches, stores, and a name for what is used more than once."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Sequence

import tilesmith.exc as errors
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.gradients.source.expressions import ALWAYS_IN_PLACE, Expressions, number
from tilesmith.gradients.source.scope import Scope, TileName, tile_names
from tilesmith.gradients.source.subscripts import Subscripts
from tilesmith.gradients.source.texts import (
    LINE,
    Identifiers,
    Text,
    call,
    listed,
    returned,
    wrapped,
)
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, If, Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.reduction import Reduce, ReduceWith, ScanWith
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import Value

WIDEST_IN_PLACE = 60
"""Characters of an expression that is written inside another."""
INDENT = "    "
WIDEST_HEADER = 80
"""Characters of a function's parameters that stand in one line."""
NAMES_BY_FUNCTION = {
    "add": "total", "sub": "difference", "mul": "product", "div": "quotient", "exp": "powers",
    "exp2": "powers", "where": "chosen", "rsqrt": "inverse", "sqrt": "root", "neg": "negated",
    "log": "logarithm", "eq": "hits", "lt": "below", "le": "below", "gt": "above", "ge": "above",
    "and": "mask", "or": "mask", "not": "mask", "floordiv": "number", "maximum": "larger",
    "minimum": "smaller",
}  # fmt: skip
NAMES_BY_REDUCTION = {"sum": "total", "max": "peak", "min": "least", "prod": "product"}


class Uses:
    """Which ops use a value, and in which region they stand."""

    def __init__(self, function: Function) -> None:
        self._users: dict[Value, list[tuple[Operation, Region]]] = {}
        self._regions: dict[Value, Region] = {}
        self._visit(function.body)

    def _visit(self, region: Region) -> None:
        for op in region.ops:
            for value in op.operand_values():
                self._users.setdefault(value, []).append((op, region))
            for result in op.results:
                self._regions[result] = region
            for inner in op.regions():
                self._visit(inner)

    def is_only_yielded(self, value: Value) -> bool:
        """Whether a value is carried on, and used for nothing else."""
        users = self._users.get(value, ())
        return len(users) == 1 and isinstance(users[0][0], Yield)

    def count(self, value: Value, *, limit: int = 2) -> int:
        """How often a value is written out, up to a limit; in another region counts as often."""
        total = 0
        for op, region in self._users.get(value, ()):
            if isinstance(op, ALWAYS_IN_PLACE) and region is self._regions.get(value):
                total += self.count(op.result)
            else:
                total += 1 if region is self._regions.get(value) else limit
            if total >= limit:
                return limit
        return total

    def is_overtaken(self, load: Load) -> bool:
        """Whether something else would be in memory where the value is written in place."""
        ops = self._regions[load.result].ops
        between = ops[ops.index(load) + 1 : self._latest_place(load, ops)]
        inner = (op for one in between for region in one.regions() for op in walk(region))
        effects = (op for op in (*between, *inner) if isinstance(op, (Store, Atomic)))
        return any(op.tensor is load.tensor for op in effects)

    def _latest_place(self, op: Operation, ops: Sequence[Operation]) -> int:
        """Which op of a region has the text of another one, or stands behind it."""
        if len(op.results) != 1 or self.count(op.result) != 1:
            return ops.index(op)
        return max(self._latest_place(user, ops) for user, _ in self._users[op.result])


class Combinations:
    """Writes scans and reductions by functions, and these functions."""

    def __init__(self, expressions: Expressions) -> None:
        self._expressions = expressions
        self._scope = expressions.scope
        self.functions: dict[str, str] = {}
        """What elements are combined by: texts without the name, and names."""

    def text(self) -> str:
        """All functions."""
        return "".join(f"def {name}{text}\n\n\n" for text, name in self.functions.items())

    def write(self, op: ScanWith | ReduceWith, uses: Uses) -> str:
        """A call with a function of its own, which is written above the kernel."""
        function = self._combination(op.combine)
        xs = [self._expressions.whole(x).code for x in op.xs]
        given = xs[0] if len(xs) == 1 else f"({', '.join(xs)})"
        args = [function, given, f"dim={op.axis}"]
        if isinstance(op, ReduceWith) and op.others is not None:
            others = [number(other).code for other in op.others]
            args.append(f"other={others[0] if len(others) == 1 else '(' + ', '.join(others) + ')'}")
        if isinstance(op, ScanWith) and op.reverse:
            args.append("reverse=True")
        name = "hl.associative_scan" if isinstance(op, ScanWith) else "hl.reduce"
        wishes = [v.name or "running" if uses.count(v) else "" for v in op.results]
        names = [self._scope.identifiers.make(wish) if wish else "_" for wish in wishes]
        self._scope.texts.update((v, Text(n)) for v, n in zip(op.results, names))
        return f"{', '.join(names)} = {call(name, *args).code}"

    def _combination(self, combine: Region) -> str:
        """The name of a function that combines elements."""
        # Names of arguments are the function's own.
        own = Identifiers()
        for arg in combine.args:
            self._scope.texts[arg] = Text(own.make(arg.name or "element"))
        self._scope.elements.update(combine.args)
        args = [f"{self._scope.texts[arg].code}: torch.Tensor" for arg in combine.args]
        results = [self._expressions.text(value).code for value in combine.yielded]
        kind = ", ".join(["torch.Tensor"] * len(results))
        returns = kind if len(results) == 1 else f"tuple[{kind}]"
        header = f"({', '.join(args)}) -> {returns}:"
        value = returned(results)
        is_long = len(results) > 1 and len(value) > LINE - len(INDENT + "return ")
        value = f"({value})" if is_long else value
        lines = [header, *wrapped(f"return {value}", INDENT)]
        if len(header) > WIDEST_HEADER:
            lines[:1] = ["(", *(f"{INDENT}{arg}," for arg in args), f") -> {returns}:"]
        text = "\n".join(lines)
        if text not in self.functions:
            self.functions[text] = self._scope.identifiers.make("combine")
        return self.functions[text]


class DeviceCode:
    """Writes the device loops of a function as lines."""

    def __init__(self, scope: Scope, reversed_loops: Sequence[Value] = ()) -> None:
        self.lines: list[str] = []
        self._scope = scope
        self._reversed = frozenset(reversed_loops)
        self._expressions = Expressions(scope)
        self._subscripts = Subscripts(self._expressions)
        self.combinations = Combinations(self._expressions)
        self._uses = Uses(scope.function)
        self._shown: tuple[str, int] | None = None

    def write(self, region: Region, depth: int) -> None:
        """All ops of a region; its terminator is the business of the op around it."""
        for op in region.ops:
            if not isinstance(op, Yield):
                self._write_op(op, depth)

    def _write_op(self, op: Operation, depth: int) -> None:
        if isinstance(op, Grid):
            self._write_grid(op, depth)
        elif isinstance(op, Loop):
            self._write_loop(op, depth)
        elif isinstance(op, If):
            self._write_if(op, depth)
        elif isinstance(op, (Store, Atomic)):
            self._say(op, depth, self._effect(op))
        elif isinstance(op, (ScanWith, ReduceWith)):
            self._say(op, depth, self.combinations.write(op, self._uses))
        elif isinstance(op, ALWAYS_IN_PLACE) or self._subscripts.is_slice(op):
            return
        elif len(op.results) == 1:
            self._write_value(op, depth)
        else:
            raise errors.AutodiffNotSupported(
                function=self._scope.function.name,
                reason=f"`{op.name}` cannot be computed again",
                loc=op.loc,
            )

    def _text_of(self, op: Operation) -> Text:
        if isinstance(op, Load):
            if op.mask is None:
                return Text(self._subscripts.subscript(op))
            mask = self._expressions.operand(op.mask)[0].code
            return call("hl.load", self._subscripts.listed(op), f"extra_mask={mask}")
        return self._expressions.text(op.result)

    def _write_value(self, op: Operation, depth: int) -> None:
        value = op.result
        text = self._text_of(op)
        if self._expressions.is_number(value):
            self._scope.texts[value] = text
            return
        is_short = len(text.code) <= WIDEST_IN_PLACE and not value.name
        is_in_place = is_short or self._uses.is_only_yielded(value)
        has_to_stay = isinstance(op, Load) and self._uses.is_overtaken(op)
        if self._uses.count(value) < 2 and is_in_place and not has_to_stay:
            self._scope.texts[value] = text
            return
        if re.fullmatch(r"\w+", text.code):
            self._scope.texts[value] = text
            return
        name = self._scope.identifiers.make(value.name or _describe(op))
        self._say(op, depth, f"{name} = {text.code}")
        self._scope.texts[value] = Text(name)

    def _effect(self, op: Store | Atomic) -> str:
        value = self._expressions.operand(op.value)[0].code
        if isinstance(op, Atomic):
            return f"hl.atomic_{op.kind}({self._subscripts.listed(op)}, {value})"
        if op.mask is not None:
            mask = self._expressions.operand(op.mask)[0].code
            return f"hl.store({self._subscripts.listed(op)}, {value}, extra_mask={mask})"
        return f"{self._subscripts.subscript(op)} = {value}"

    def _say(self, op: Operation, depth: int, line: str) -> None:
        """A statement, below the user's line that it comes from."""
        comment = user_line(op.loc)
        place = (op.loc.file, op.loc.line)
        if comment and place != self._shown:
            if comment != line:
                self.lines.append(f"{INDENT * depth}# {comment}")
            self._shown = place
        self.lines += wrapped(line, INDENT * depth)

    def _range(self, op: Grid | Loop, tiles: list[TileName]) -> str:
        begins = [self._expressions.text(begin).code for begin in op.begins]
        ends = [
            self._scope.ends.get(arg) or self._expressions.text(end).code
            for arg, end in zip(op.body.args, op.ends)
        ]
        is_single = len(ends) == 1
        bounds = [ends[0]] if is_single else [listed(ends)]
        if any(begin != "0" for begin in begins):
            bounds.insert(0, begins[0] if is_single else listed(begins))
        steps = self._steps(op, tiles)
        if steps:
            bounds.append(steps)
        text = f"hl.{'grid' if tiles[0].is_index else 'tile'}({', '.join(bounds)})"
        return f"reversed({text})" if op.body.args[0] in self._reversed else text

    def _steps(self, op: Grid | Loop, tiles: list[TileName]) -> str:
        """``block_size=`` or ``step=`` where the default would be another."""
        if tiles[0].is_index:
            own = op.steps if isinstance(op, Loop) else ()
            steps = [self._expressions.text(value).code for value in own]
            wanted, name = [None if step == "1" else step for step in steps], "step"
        else:
            wanted, name = [self._block(tile) for tile in tiles], "block_size"
        if all(item is None for item in wanted):
            return ""
        items = [str(item) for item in wanted]
        return f"{name}={items[0] if len(items) == 1 else listed(items)}"

    def _block(self, tile: TileName) -> str | None:
        if not tile.block:
            return "1"
        fixed = self._scope.function.block(tile.block).fixed
        return self._scope.blocks.get(tile.block) or (None if fixed is None else str(fixed))

    def _open(self, op: Grid | Loop, depth: int) -> None:
        tiles = tile_names(op, self._scope.identifiers)
        # Bounds are written before the tiles are known: they belong to loops around this one.
        text = self._range(op, tiles)
        self._scope.tiles.update(zip(op.body.args, tiles))
        self.lines += wrapped(f"for {', '.join(t.name for t in tiles)} in {text}:", INDENT * depth)

    def _close(self, op: Grid | Loop, start: int) -> None:
        for arg in op.body.args[: len(op.blocks)]:
            del self._scope.tiles[arg]
        if self.lines[-1].endswith(":"):
            del self.lines[start:]  # nothing stands in it

    def _write_grid(self, op: Grid, depth: int) -> None:
        start = len(self.lines)
        self._open(op, depth)
        self.write(op.body, depth + 1)
        self._close(op, start)

    def _write_loop(self, op: Loop, depth: int) -> None:
        names = self._carry(op.init, op.carried, depth)
        start = len(self.lines)
        self._open(op, depth)
        self.write(op.body, depth + 1)
        self._assign(names, op.body.yielded, depth + 1)
        self._close(op, start)
        for result, name in zip(op.results, names):
            self._scope.texts[result] = Text(name)

    def _carry(self, inits: Sequence[Value], args: Sequence[Value], depth: int) -> list[str]:
        names = [
            self._scope.identifiers.make(arg.name or init.name or "total")
            for init, arg in zip(inits, args)
        ]
        for init, name in zip(inits, names):
            text = self._expressions.whole(init).code
            self.lines.append(f"{INDENT * depth}{name} = {text}")
        self._scope.texts.update((arg, Text(name)) for arg, name in zip(args, names))
        return names

    def _assign(self, names: Sequence[str], values: Sequence[Value], depth: int) -> None:
        """Carry values on, all at once where one of them is computed from another's old value."""
        texts = [self._expressions.whole(value).code for value in values]
        pairs = [(name, text) for name, text in zip(names, texts) if name != text]
        targets = [name for name, _ in pairs]
        depends = any(
            set(re.findall(r"\w+", text)) & set(targets[:place])
            for place, (_, text) in enumerate(pairs)
        )
        if depends:
            joined = ", ".join(text for _, text in pairs)
            line = f"{', '.join(targets)} = {joined}"
            is_long = depth * len(INDENT) + len(line) > LINE
            line = f"{', '.join(targets)} = ({joined})" if is_long else line
            self.lines += wrapped(line, INDENT * depth)
            return
        for name, text in pairs:
            self.lines += wrapped(f"{name} = {text}", INDENT * depth)

    def _write_if(self, op: If, depth: int) -> None:
        names = [self._scope.identifiers.make(v.name or "chosen") for v in op.results]
        condition = self._expressions.text(op.condition).code
        for header, branch in ((f"if {condition}:", op.then), ("else:", op.otherwise)):
            self.lines.append(INDENT * depth + header)
            start = len(self.lines)
            self.write(branch, depth + 1)
            self._assign(names, branch.yielded, depth + 1)
            if len(self.lines) == start:
                if header == "else:":
                    self.lines.pop()
                else:
                    self.lines.append(f"{INDENT * (depth + 1)}pass")
        self._scope.texts.update((v, Text(name)) for v, name in zip(op.results, names))


def _describe(op: Operation) -> str:
    """A word for a value that the user did not name."""
    if isinstance(op, Load):
        return f"{op.tensor.name}_tile"
    if isinstance(op, Reduce):
        return NAMES_BY_REDUCTION.get(op.kind, "found")
    if isinstance(op, Cast) and op.x.name:
        return op.x.name
    if isinstance(op, Elementwise):
        return NAMES_BY_FUNCTION.get(op.fn, op.fn)
    return {"dot": "product", "permute": "turned", "reshape": "shaped"}.get(op.name, "value")


def user_line(loc: SourceLocation) -> str:
    """The text of the user's line."""
    return linecache.getline(loc.file, loc.line).strip()


Place = tuple[Grid | Loop, int]
"""A loop, and one of its axes."""


def block_places(function: Function) -> Iterator[tuple[str, Place]]:
    """The loops that step by each block."""
    for op in walk(function.body):
        if isinstance(op, (Grid, Loop)):
            yield from ((block, (op, axis)) for axis, block in enumerate(op.blocks) if block)


def shared_blocks(function: Function) -> dict[str, Place]:
    """Tuned blocks that several loops step by, or whose size is asked for, with the first one."""
    asked = {op.block for op in walk(function.body) if isinstance(op, BlockSize)}
    found = dict[str, list[Place]]()
    for block, place in block_places(function):
        found.setdefault(block, []).append(place)
    shared = {b: places[0] for b, places in found.items() if len(places) > 1 or b in asked}
    return {b: place for b, place in shared.items() if function.block(b).fixed is None}
