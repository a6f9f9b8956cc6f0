"""Values as expressions: broadcasts are left to the language, single uses are written in place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tilesmith.exc as errors
from tilesmith.dtypes import ElementKind
from tilesmith.gradients.source.scope import TORCH_DTYPES, Scope
from tilesmith.gradients.source.texts import (
    ADD,
    AND,
    ATOM,
    COMPARE,
    MULTIPLY,
    OR,
    SHIFT,
    UNARY,
    XOR,
    Text,
    call,
    listed,
)
from tilesmith.ir.axis_roles import Mixed
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, Mask, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.rearrangement import Gather, Join, Select
from tilesmith.ir.ops.reduction import Reduce, ReduceKind, Scan
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.types import Shape, Value
from tilesmith.passes.simplify import is_detached

ALWAYS_IN_PLACE = (Full, TileIndex, Arange, BlockSize, ExpandDims, Broadcast)
"""Written where they are used, however often that is."""
REDUCTIONS = {
    ReduceKind.SUM: "torch.sum", ReduceKind.PROD: "torch.prod", ReduceKind.MAX: "torch.amax",
    ReduceKind.MIN: "torch.amin", ReduceKind.ARGMAX: "torch.argmax",
    ReduceKind.ARGMIN: "torch.argmin", ReduceKind.ANY: "torch.any", ReduceKind.ALL: "torch.all",
}  # fmt: skip


def number(value: float | bool) -> Text:
    """A constant."""
    if isinstance(value, float) and not math.isfinite(value):
        return replace(call("float", f'"{value}"'), is_tile=False)
    text = repr(value)
    return Text(text, UNARY if text.startswith("-") else ATOM, is_tile=False)


class Expressions:
    """Writes values of one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def text(self, value: Value) -> Text:
        """A value in its own shape, or in one that means the same to every function."""
        known = self.scope.texts.get(value)
        if known is not None:
            return known
        tile = self.scope.tiles.get(value)
        if tile is not None:
            return Text(tile.begin)
        op = self.scope.definitions.get(value)
        if op is None:
            raise errors.InternalError(problem=f"value {value.name!r} has no text")
        rule = _RULES.get(type(op)) or (Expressions.mixed if isinstance(op.form, Mixed) else None)
        if rule is None:
            raise errors.AutodiffNotSupported(
                function=self.scope.function.name,
                reason=f"`{op.name}` cannot be computed again",
                loc=op.loc,
            )
        return rule(self, op)

    def operand(self, value: Value) -> tuple[Text, Shape]:
        """A value without the broadcasts that the language does itself, and its shape then."""
        op = self.scope.definitions.get(value)
        if value in self.scope.texts or op is None:
            return self.text(value), value.tile.shape
        if isinstance(op, Broadcast):
            return self.operand(op.x)
        if isinstance(op, Full):
            return number(op.value), ()
        if isinstance(op, ExpandDims) and op.axes == tuple(range(len(op.axes))):
            return self.operand(op.x)
        if isinstance(op, Cast) and self.is_number(op.x) and op.x.tile.dtype.is_integer:
            # Numbers take the type of what they meet.
            return self.text(op.x), ()
        return self.text(value), value.tile.shape

    def is_number(self, value: Value) -> bool:
        """Whether a scalar is a number of the host, or computed from such and from positions."""
        op = self.scope.definitions.get(value)
        if isinstance(op, Full):
            return True
        # Numbers are not as narrow as unsigned tiles, of which random numbers are made.
        is_unsigned = value.tile.dtype.kind is ElementKind.UNSIGNED
        if value.tile.rank or is_unsigned or value in self.scope.elements:
            return False
        if op is None or isinstance(op, (Full, BlockSize)):
            return True
        is_sum = isinstance(op, (Elementwise, Cast))
        return is_sum and all(map(self.is_number, op.operand_values()))

    def elementwise(self, op: Elementwise) -> Text:
        """A scalar function; operands broadcast by themselves if one has the whole shape."""
        special = self._tile_property(op)
        if special is not None:
            return special
        parts = [self.operand(arg) for arg in op.args]
        if _meet([shape for _, shape in parts]) != op.result.tile.shape:
            first = op.fn == "where"
            parts[first] = self.whole(op.args[first]), op.result.tile.shape
        texts = [
            replace(text, is_tile=False) if self.is_number(_scalar_of(self.scope, arg)) else text
            for (text, _), arg in zip(parts, op.args)
        ]
        return write_function(op.fn, texts, are_numbers=self.is_number(op.result))

    def _tile_property(self, op: Elementwise) -> Text | None:
        """``tile.id`` and ``tile.end``, written as such."""
        if op.fn == "floordiv":
            tile = self.scope.tiles.get(op.args[0])
            is_own = tile is not None and self._is_size(op.args[1], tile.block)
            return Text(f"{tile.name}.id") if is_own and tile is not None else None
        stop = self.scope.definitions.get(op.args[0])
        if op.fn != "minimum" or not isinstance(stop, Elementwise) or stop.fn != "add":
            return None
        tile = self.scope.tiles.get(stop.args[0])
        is_own = tile is not None and self._is_size(stop.args[1], tile.block)
        is_end = is_own and tile is not None and tile.end is op.args[1]
        return Text(f"{tile.name}.end") if is_end and tile is not None else None

    def _is_size(self, value: Value, block: str) -> bool:
        op = self.scope.definitions.get(value)
        return isinstance(op, BlockSize) and op.block == block

    def whole(self, value: Value) -> Text:
        """A value that has its whole shape, whatever it meets."""
        op = self.scope.definitions.get(value)
        if value in self.scope.texts or not isinstance(op, (Full, Broadcast)):
            return self.text(value)
        dims = listed(self.scope.dims(value.tile.shape))
        dtype = TORCH_DTYPES[value.tile.dtype.name]
        inner = self._broadcast_source(op)
        if not value.tile.rank:
            return self.text(value)
        if isinstance(inner, Text):
            is_zero = inner.code == "0.0"
            name, middle = ("hl.zeros", []) if is_zero else ("hl.full", [inner.code])
            return call(name, dims, *middle, f"dtype={dtype}")
        return call(f"{self.text(inner).atom}.expand", dims)

    def _broadcast_source(self, op: Full | Broadcast) -> Text | Value:
        """The number that fills a tile, or the narrower tile that is repeated."""
        if isinstance(op, Full):
            return number(op.value)
        text, shape = self.operand(op.x)
        source = self.scope.definitions.get(op.x)
        return text if not shape and self.is_number(_root(source, op.x)) else op.x

    def expand_dims(self, op: ExpandDims) -> Text:
        """``x[:, None]``."""
        marks = ["None" if i in op.axes else ":" for i in range(op.result.tile.rank)]
        if self.is_number(op.x):
            return self.whole(op.x)
        return Text(f"{self.text(op.x).atom}[{', '.join(marks)}]")

    def cast(self, op: Cast) -> Text:
        """``x.to(dtype)``."""
        dtype = TORCH_DTYPES[op.dtype.name]
        if self.is_number(op.x):
            is_unsigned = op.dtype.kind is ElementKind.UNSIGNED
            text = self.text(op.x)
            return call("hl.full", "[]", text.code, f"dtype={dtype}") if is_unsigned else text
        if is_detached(op):
            return call(f"{self.text(op.x).atom}.detach")
        method = "view" if op.bitcast else "to"
        return call(f"{self.text(op.x).atom}.{method}", dtype)

    def dot(self, op: Dot) -> Text:
        """``hl.dot``."""
        args = [self.whole(op.lhs).code, self.whole(op.rhs).code]
        if op.acc is not None:
            args.append(f"acc={self.whole(op.acc).code}")
        return call("hl.dot", *args)

    def permute(self, op: Permute) -> Text:
        """``x.T``, or any other order."""
        x, rank = self.whole(op.x).atom, len(op.order)
        if op.order == (*range(rank - 2), rank - 1, rank - 2):
            return Text(f"{x}.T" if rank == 2 else f"{x}.mT")
        return call(f"{x}.permute", *map(str, op.order))

    def select(self, op: Select) -> Text:
        """One element along an axis."""
        if op.axis == op.x.tile.rank - 1 and op.x.tile.shape[-1].constant == 2:
            return Text(f"hl.split({self.whole(op.x).code})[{op.position}]")
        return call(f"{self.whole(op.x).atom}.select", str(op.axis), str(op.position))

    def mixed(self, op: Any) -> Text:
        """The values that a function of torch gives, which mixes the lanes of an axis."""
        return Text(f"torch.{op.name}({self.whole(op.x).code}, dim={op.axis})[0]")

    def scan(self, op: Scan) -> Text:
        """``hl.cumsum`` and the like."""
        args = [self.whole(op.x).code, str(op.axis), *(["reverse=True"] if op.reverse else [])]
        if op.reduction in (ReduceKind.SUM, ReduceKind.PROD):
            return call("hl.cumsum" if op.reduction is ReduceKind.SUM else "hl.cumprod", *args)
        return call("hl.associative_scan", f"torch.{op.kind}imum", *args)

    def block_size(self, op: BlockSize) -> Text:
        """The size of a block."""
        tile = self.scope.tile_of(op.block)
        return Text(f"{tile.name}.block_size" if tile else self.scope.blocks[op.block])

    def tile_index(self, op: TileIndex) -> Text:
        """``tile.index``."""
        tile = self.scope.tiles.get(op.begin)
        if tile is not None and tile.block == op.block:
            return Text(f"{tile.name}.index")
        size = self.scope.tile_of(op.block)
        width = f"{size.name}.block_size" if size else self.scope.blocks[op.block]
        return Text(f"{self.text(op.begin).code} + hl.arange({width})", ADD)


def _scalar_of(scope: Scope, value: Value) -> Value:
    """What a tile repeats in all its lanes, or the tile itself."""
    op = scope.definitions.get(value)
    while isinstance(op, (ExpandDims, Broadcast)) and value not in scope.texts:
        value, op = op.x, scope.definitions.get(op.x)
    return value


def _root(op: Operation | None, value: Value) -> Value:
    """What views of a scalar show."""
    return op.x if isinstance(op, (ExpandDims, Broadcast)) else value


def _meet(shapes: list[Shape]) -> Shape | None:
    """The shape that tiles broadcast to, aligned to the right; None where they do not."""
    rank = max(map(len, shapes))
    result: list[Any] = []
    for place in range(1, rank + 1):
        dims = {shape[-place] for shape in shapes if len(shape) >= place}
        wide = [dim for dim in dims if not dim.is_one]
        if len(wide) > 1:
            return None
        result.insert(0, wide[0] if wide else next(iter(dims)))
    return tuple(result)


_RULES: dict[type[Operation], Callable[[Expressions, Any], Text]] = {
    Elementwise: Expressions.elementwise,
    Cast: Expressions.cast,
    Full: lambda self, op: self.whole(op.result) if op.result.tile.rank else number(op.value),
    Broadcast: lambda self, op: self.whole(op.result),
    ExpandDims: Expressions.expand_dims,
    Mask: lambda self, op: self.text(op.x),
    TileIndex: Expressions.tile_index,
    Arange: lambda self, op: call("hl.arange", self.scope.dim(op.result.tile.shape[0])),
    BlockSize: Expressions.block_size,
    Dot: Expressions.dot,
    Permute: Expressions.permute,
    Reshape: lambda self, op: call(
        f"{self.whole(op.x).atom}.reshape", listed(self.scope.dims(op.result.tile.shape))
    ),
    Reduce: lambda self, op: call(
        REDUCTIONS[op.reduction], self.whole(op.x).code, f"dim={op.axis}"
    ),
    Scan: Expressions.scan,
    Join: lambda self, op: call("hl.join", self.whole(op.lhs).code, self.whole(op.rhs).code),
    Select: Expressions.select,
    Gather: lambda self, op: call(
        "torch.gather", self.whole(op.x).code, str(op.axis), self.whole(op.index).code
    ),
}


INFIX = {
    "add": ("+", ADD), "sub": ("-", ADD), "mul": ("*", MULTIPLY), "div": ("/", MULTIPLY),
    "floordiv": ("//", MULTIPLY), "mod": ("%", MULTIPLY), "shl": ("<<", SHIFT),
    "shr": (">>", SHIFT), "and": ("&", AND), "or": ("|", OR), "xor": ("^", XOR),
    "eq": ("==", COMPARE), "ne": ("!=", COMPARE), "lt": ("<", COMPARE), "le": ("<=", COMPARE),
    "gt": (">", COMPARE), "ge": (">=", COMPARE),
}  # fmt: skip
PREFIX = {"neg": "-", "not": "~"}
CLAMPS = {"maximum": "min", "minimum": "max"}
"""Extremes of a tile and a number: the bound of ``torch.clamp`` that it is."""
OF_NUMBERS = {"maximum": "max", "minimum": "min"}
"""Builtins that runtime numbers have."""


def write_function(fn: str, args: list[Text], *, are_numbers: bool) -> Text:
    """A scalar function of operands that are written already."""
    if fn in PREFIX:
        return Text(f"{PREFIX[fn]}{args[0].within(UNARY)}", UNARY)
    if fn in INFIX:
        symbol, level = INFIX[fn]
        if fn == "add" and args[1].level == UNARY and args[1].code.startswith("-"):
            symbol, args = "-", [args[0], Text(args[1].code[1:])]
        # Comparisons do not chain, and a - (b - c) is not a - b - c.
        left = args[0].within(level + 1 if level == COMPARE else level)
        return Text(f"{left} {symbol} {args[1].within(level + 1)}", level)
    if fn in CLAMPS:
        return _extreme(fn, args, are_numbers=are_numbers)
    special = SPECIAL.get(fn)
    return special(*args) if special else call(f"torch.{fn}", *(arg.code for arg in args))


def _extreme(fn: str, args: list[Text], *, are_numbers: bool) -> Text:
    if are_numbers:
        return call(OF_NUMBERS[fn], *(arg.code for arg in args))
    tiles = [arg for arg in args if arg.is_tile]
    if len(tiles) == 1:
        (bound,) = [arg for arg in args if not arg.is_tile]
        return call("torch.clamp", tiles[0].code, f"{CLAMPS[fn]}={bound.code}")
    return call(f"torch.{fn}", *(arg.code for arg in args))


def _multiply_add(a: Text, b: Text, c: Text) -> Text:
    product = f"{a.within(MULTIPLY)} * {b.within(MULTIPLY + 1)}"
    return Text(f"{product} + {c.within(ADD + 1)}", ADD)


def _upper_half(left: Text, right: Text) -> Text:
    """The upper 32 bits of a product: the lower 64 of one of signed numbers are the same."""
    factors = [f"{arg.atom}.to(torch.int64)" if arg.is_tile else arg.code for arg in (left, right)]
    return call(f"({factors[0]} * {factors[1]} >> 32).to", "torch.uint32")


SPECIAL: dict[str, Callable[..., Text]] = {
    "fma": _multiply_add,
    "mulhi": _upper_half,
    "truncdiv": lambda a, b: call("torch.div", a.code, b.code, 'rounding_mode="trunc"'),
}
"""Functions that have no name of their own."""
