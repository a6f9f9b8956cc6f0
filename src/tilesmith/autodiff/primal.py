"""Values of the forward kernel, computed again where the backward kernel needs them.

Memory does not change while gradients are computed, so any value can be had anywhere inside the
loops that it depends on: it is written down when it is first asked for, and only then.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from tilesmith.autodiff.accesses import Accesses
from tilesmith.autodiff.derivatives import spelled
from tilesmith.autodiff.outline import Outline
from tilesmith.autodiff.scope import Names, Scope, Text
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, Mask, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.rearrangement import Join, Select
from tilesmith.ir.ops.reduction import Reduce, Scan
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.types import Dim, Shape, Value

REDUCTIONS = {
    "sum": "torch.sum", "prod": "torch.prod", "max": "torch.amax", "min": "torch.amin",
    "any": "torch.any", "all": "torch.all", "argmax": "torch.argmax", "argmin": "torch.argmin",
}  # fmt: skip
SCANS = {"sum": "hl.cumsum", "prod": "hl.cumprod"}
TORCH_NAMES = {
    "u8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "f16": "float16",
    "bf16": "bfloat16", "f32": "float32", "f64": "float64", "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
}  # fmt: skip


def dtype_text(name: str) -> str:
    """A dtype as torch writes it."""
    return f"torch.{TORCH_NAMES.get(name, name)}"


def new_axes(rank: int, axes: tuple[int, ...]) -> str:
    """The subscript that adds axes to a value, so that it has this rank."""
    return ", ".join("None" if axis in axes else ":" for axis in range(rank))


class Primal:
    """Writes values of one function."""

    def __init__(self, outline: Outline, names: Names) -> None:
        self.outline = outline
        self.names = names
        self.accesses = Accesses(outline, self.value)
        self.loaded: dict[Value, str] = {}
        """The tensors that are read, and what they are called."""
        self.scalars: dict[Value, str] = {}

    def value(self, value: Value, scope: Scope) -> Text:
        """An expression for a value, usable in the scope."""
        home = scope.of(self.outline.home(value))
        if value not in home.known:
            home.known[value] = self._define(value, home)
        return home.known[value]

    def full(self, value: Value, scope: Scope) -> str:
        """The same, with all of the value's shape."""
        return self.shaped(self.value(value, scope), value, scope)

    def shaped(self, text: Text, value: Value, scope: Scope) -> str:
        """An expression with the shape of a value."""
        if text.is_full:
            return text.code
        sizes, tile = self.sizes(value.tile.shape, scope), value.tile
        if _is_literal(text.code):
            return f"hl.full([{sizes}], {text.code}, dtype={dtype_text(tile.dtype.name)})"
        return f"{text.code}.expand([{sizes}])"

    def sizes(self, shape: Shape, scope: Scope) -> str:
        """Sizes as the language writes them: tiles stand for their blocks."""
        return ", ".join(self._size(dim, scope) for dim in shape)

    def _size(self, dim: Dim, scope: Scope) -> str:
        symbol = dim.symbol
        if symbol is not None:
            return self.block(symbol, scope)
        parts = [f if isinstance(f, int) else f"{self.block(f, scope)}" for f in dim.factors]
        texts = [str(p) if isinstance(p, int) else f"{p}.block_size" for p in parts]
        return " * ".join(texts) or "1"

    def block(self, symbol: str, scope: Scope) -> str:
        """The tile whose size a symbol is."""
        tile = scope.tile(symbol)
        if tile is None:
            raise self.outline.refusal(f"a value has the size `{symbol}` outside of its loop")
        return tile

    def assign(self, code: str, wish: str, scope: Scope) -> str:
        """A new variable with this value."""
        name = self.names.fresh(wish)
        scope.lines.append(f"{name} = {code}")
        return name

    def _define(self, value: Value, scope: Scope) -> Text:
        op = self.outline.definition(value)
        if op is None:
            return self._argument(value, scope)
        if isinstance(op, Full):
            return Text(_literal(op.value), is_full=not op.result.tile.rank)
        if isinstance(op, Broadcast):
            inner = self.value(op.x, scope)
            return Text(inner.code, is_full=False)
        if isinstance(op, Mask):
            return self.value(op.x, scope)
        if isinstance(op, Loop):
            self.run_again(op, [op.results.index(value)], scope)
            return scope.known[value]
        if isinstance(op, ExpandDims) and _is_literal(self.value(op.x, scope).code):
            return Text(self.value(op.x, scope).code, is_full=False)
        code = self._expression(op, value, scope)
        return Text(self.assign(code, value.name or "value", scope))

    def _argument(self, value: Value, scope: Scope) -> Text:
        if value in scope.begins:
            tile = scope.begins[value]
            return Text(tile if tile not in scope.tiles.values() else f"{tile}.begin")
        if value in self.outline.scalars:
            name = self.scalars.setdefault(value, self.names.fresh(value.name or "number"))
            return Text(name)
        return self._carried(value, scope)

    def _carried(self, value: Value, scope: Scope) -> Text:
        """What a loop has so far, at the tile of its backward loop: run up to it."""
        loop = self.outline.loop_of(value)
        (tile,) = scope.tiles.values()
        until = f"{tile}.begin"
        self.run_again(loop, [loop.carried.index(value)], scope, until=until)
        return scope.known[value]

    def run_again(
        self, loop: Loop, positions: list[int], scope: Scope, *, until: str | None = None
    ) -> None:
        """Write a loop of the forward kernel, for some of the values it carries.

        They are known afterwards as the results, or, run up to a tile only, as what is carried.
        """
        needed = self.outline.needed_to_carry(loop, positions)
        outer = scope if until is None else scope.parent
        assert outer is not None
        named = loop.results if until is None else loop.carried
        inits = {k: self.full(loop.init[k], outer) for k in needed}
        kept = {k: self.assign(inits[k], named[k].name or "carried", scope) for k in needed}
        body = Scope(loop.body, scope)
        header = self.header(loop, body, until=until)
        body.known |= {loop.carried[k]: Text(kept[k]) for k in needed}
        news = [self.full(loop.body.yielded[k], body) for k in needed]
        body.lines.append(f"{', '.join(kept.values())} = {', '.join(news)}")
        scope.add_loop(header, body)
        scope.known |= {named[k]: Text(kept[k]) for k in needed}

    def header(
        self,
        loop: Grid | Loop,
        body: Scope,
        *,
        until: str | None = None,
        is_reversed: bool = False,
    ) -> str:
        """The ``for`` of a loop; its variables are known in the body from now on."""
        outer = body.parent
        assert outer is not None
        variables = [self.names.fresh(block or "index") for block in loop.blocks]
        has_tiles = all(loop.blocks)
        if not has_tiles and any(loop.blocks):
            raise self.outline.refusal("a loop has tiles and single indices")
        begins = [self.value(begin, outer).code for begin in loop.begins]
        ends = [until] if until else [self.value(end, outer).code for end in loop.ends]
        arguments = [_one_or_list(begins), _one_or_list(ends)]
        if set(begins) == {"0"}:
            arguments = arguments[1:]
        if has_tiles:
            arguments += self._block_sizes(loop, is_own=until is None)
            body.tiles |= dict(zip(loop.blocks, variables))
        elif isinstance(loop, Loop):
            steps = [self.value(step, outer).code for step in loop.steps]
            arguments = [_one_or_list(begins), _one_or_list(ends), _one_or_list(steps)]
        body.begins |= dict(zip(loop.body.args, variables))
        call = f"hl.{'tile' if has_tiles else 'grid'}({', '.join(arguments)})"
        call = f"reversed({call})" if is_reversed else call
        return f"for {', '.join(variables)} in {call}:"

    def _block_sizes(self, loop: Grid | Loop, *, is_own: bool) -> list[str]:
        sizes = [self.outline.block_size(block, is_own=is_own) for block in loop.blocks]
        return [f"block_size={_one_or_list(sizes)}"] if any(s != "None" for s in sizes) else []

    def _expression(self, op: Operation, value: Value, scope: Scope) -> str:
        if isinstance(op, Load):
            name = self.tensor(op.tensor)
            return self.accesses.read(op, name, scope)
        writer = _WRITERS.get(type(op))
        if writer is None:
            raise self.outline.refusal(f"it uses `{op.name}`")
        return writer(self, op, scope)

    def tensor(self, tensor: Value) -> str:
        """The name of a tensor that the backward kernel reads."""
        return self.loaded.setdefault(tensor, self.names.fresh(tensor.name or "tensor"))


def _one_or_list(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"[{', '.join(items)}]"


def _literal(value: Any) -> str:
    is_plain = not isinstance(value, float) or isfinite(value)
    return repr(value) if is_plain else f'float("{value}")'


def _is_literal(code: str) -> bool:
    return code.startswith('float("') or code in ("True", "False") or code[:1] in "-.0123456789"


def _elementwise(primal: Primal, op: Elementwise, scope: Scope) -> str:
    texts = [primal.value(arg, scope) for arg in op.args]
    codes = [text.code for text in texts]
    if not any(text.is_full for text in texts):
        first = 1 if op.fn == "where" else 0
        codes[first] = primal.shaped(texts[first], op.args[first], scope)
    return spelled(op.fn, codes)


def _cast(primal: Primal, op: Cast, scope: Scope) -> str:
    text, dtype = primal.full(op.x, scope), dtype_text(op.dtype.name)
    if op.bitcast:
        return f"{text}.view({dtype})"
    return f"{text}.to({dtype})"


def _expanded(primal: Primal, op: ExpandDims, scope: Scope) -> str:
    return f"{primal.full(op.x, scope)}[{new_axes(op.result.tile.rank, op.axes)}]"


def _dot(primal: Primal, op: Dot, scope: Scope) -> str:
    operands = f"{primal.full(op.lhs, scope)}, {primal.full(op.rhs, scope)}"
    acc = "" if op.acc is None else f", acc={primal.full(op.acc, scope)}"
    return f"hl.dot({operands}{acc}, out_dtype={dtype_text(op.result.tile.dtype.name)})"


def _reduced(primal: Primal, op: Reduce, scope: Scope) -> str:
    return f"{REDUCTIONS[op.kind]}({primal.full(op.x, scope)}, dim={op.axis})"


def _scanned(primal: Primal, op: Scan, scope: Scope) -> str:
    if op.kind not in SCANS:
        raise primal.outline.refusal(f"it uses a running {op.kind}")
    return f"{SCANS[op.kind]}({primal.full(op.x, scope)}, {op.axis}, reverse={op.reverse})"


def _reshaped(primal: Primal, op: Reshape, scope: Scope) -> str:
    sizes = primal.sizes(op.result.tile.shape, scope)
    return f"{primal.full(op.x, scope)}.reshape([{sizes}])"


def _permuted(primal: Primal, op: Permute, scope: Scope) -> str:
    return f"{primal.full(op.x, scope)}.permute({', '.join(map(str, op.order))})"


def _joined(primal: Primal, op: Join, scope: Scope) -> str:
    return f"hl.join({primal.full(op.lhs, scope)}, {primal.full(op.rhs, scope)})"


def _selected(primal: Primal, op: Select, scope: Scope) -> str:
    primal.outline.check_split(op)
    return f"hl.split({primal.full(op.x, scope)})[{op.position}]"


def _tile_index(primal: Primal, op: TileIndex, scope: Scope) -> str:
    tile = primal.accesses.tile_of(op, scope)
    if tile is None:
        raise primal.outline.refusal("a tile begins elsewhere than its loop says")
    return f"{tile}.index"


def _arange(primal: Primal, op: Arange, scope: Scope) -> str:
    return f"hl.arange({primal.sizes(op.result.tile.shape, scope)})"


def _block_size(primal: Primal, op: BlockSize, scope: Scope) -> str:
    return f"{primal.block(op.block, scope)}.block_size"


_WRITERS: dict[type[Operation], Callable[[Primal, Any, Scope], str]] = {
    Elementwise: _elementwise, Cast: _cast, ExpandDims: _expanded, Dot: _dot, Reduce: _reduced,
    Scan: _scanned, Reshape: _reshaped, Permute: _permuted, Join: _joined, Select: _selected,
    TileIndex: _tile_index, Arange: _arange, BlockSize: _block_size,
}  # fmt: skip
