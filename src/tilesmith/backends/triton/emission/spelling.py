"""How expressions, parameters, sizes, shapes and types of one function are written.

An expression has the shape that Triton gives it, which may be smaller than the IR value's: an axis
of size 1 (or a bare scalar) is broadcast wherever the value meets a full one. Identifiers are
readable, unique and clear of what Triton gives meaning to.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tilesmith.analysis.product_operands import LEAST_CONTRACTED, least_contracted
from tilesmith.artifacts import TensorDescription
from tilesmith.backends.source_writer import OPERATORS, Precedence
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.dtypes import ALL_DTYPES, BOOL, F8E4M3, F8E5M2, F16, F32, F64, I32, DType
from tilesmith.ir.function import Function
from tilesmith.ir.ops.foreign import InlineTriton
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.traversal import definitions, walk_function
from tilesmith.ir.types import ONE, Dim, Extent, Shape, TileType, Value
from tilesmith.schedule.schedule import Schedule

Number = int | float | bool


@dataclass(frozen=True)
class Expr:
    """One expression. Operators are of index arithmetic: without zero terms and factors of one."""

    text: str
    precedence: Precedence = Precedence.ATOM
    shape: Shape = ()
    arguments: tuple[str, ...] | None = None
    """Of a call: ``text`` is then what is called, so that a long one can be broken over lines."""
    constant: Number | None = None
    """The value of a literal."""
    is_untyped: bool = False
    """Whether Triton may see a Python number here (literal, constexpr, argument equal to 1)."""

    def __str__(self) -> str:
        return self.text if self.arguments is None else f"{self.text}({', '.join(self.arguments)})"

    def at(self, precedence: Precedence) -> str:
        """The text, in parentheses unless it binds at least this tightly."""
        return str(self) if self.precedence >= precedence else f"({self})"

    def with_shape(self, shape: Shape) -> Expr:
        """The same text standing for another shape."""
        return replace(self, shape=shape)

    def infix(self, operator: str, rhs: Expr) -> Expr:
        """``self operator rhs`` with the parentheses it needs."""
        precedence = OPERATORS[operator]
        left = self.at(Precedence(precedence + (precedence is Precedence.COMPARE)))
        right = rhs.at(Precedence(min(precedence + 1, Precedence.ATOM)))
        return Expr(
            f"{left} {operator} {right}",
            precedence,
            broadcast_shapes(self.shape, rhs.shape),
            is_untyped=self.is_untyped and rhs.is_untyped,
        )

    def method(self, name: str, *arguments: object) -> Expr:
        """``self.name(arguments)``, which has the same shape."""
        return call(f"{self.at(Precedence.ATOM)}.{name}", *arguments, shape=self.shape)

    def subscript(self, axes: tuple[int, ...], shape: Shape) -> Expr:
        """``self[:, None]``: ``axes`` are the new ones among the result's."""
        items = ", ".join("None" if axis in axes else ":" for axis in range(len(shape)))
        return Expr(f"{self.at(Precedence.ATOM)}[{items}]", shape=shape)

    def __add__(self, other: Expr | int) -> Expr:
        rhs = _operand(other)
        if self.constant == 0:
            return rhs
        if rhs.constant is None:
            return self.infix("+", rhs)
        if rhs.constant == 0:
            return self
        if self.constant is not None:
            return literal(self.constant + rhs.constant)
        if rhs.constant < 0:
            return self.infix("-", literal(-rhs.constant))
        return self.infix("+", rhs)

    def __sub__(self, rhs: Expr) -> Expr:
        if rhs.constant == 0:
            return self
        if self.constant is not None and rhs.constant is not None:
            return literal(self.constant - rhs.constant)
        return self.infix("-", rhs)

    def __mul__(self, other: Expr | int) -> Expr:
        rhs = _operand(other)
        if self.constant == 0 or rhs.constant == 0:
            return literal(0)
        if self.constant == 1:
            return rhs
        if rhs.constant == 1:
            return self
        if self.constant is not None and rhs.constant is not None:
            return literal(self.constant * rhs.constant)
        return self.infix("*", rhs)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return self.infix("//", _operand(other))

    def __mod__(self, other: Expr | int) -> Expr:
        return self.infix("%", _operand(other))


def _operand(value: Expr | int) -> Expr:
    return literal(value) if isinstance(value, int) else value


def literal(value: Number) -> Expr:
    """A Python number."""
    if isinstance(value, float) and not math.isfinite(value):
        text = 'float("nan")' if math.isnan(value) else f'float("{value}")'
    else:
        text = repr(value)
    precedence = Precedence.UNARY if text.startswith("-") else Precedence.ATOM
    return Expr(text, precedence, constant=value, is_untyped=True)


def call(name: str, *arguments: object, shape: Shape = ()) -> Expr:
    """A function call; arguments are turned into text."""
    return Expr(name, shape=shape, arguments=tuple(map(str, arguments)))


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape of tiles combined lane by lane, aligned at their last axes."""
    rank = max(map(len, shapes), default=0)
    padded = [(ONE,) * (rank - len(shape)) + shape for shape in shapes if shape]
    result = (ONE,) * rank
    for shape in padded:
        result = tuple(b if a.is_one else a for a, b in zip(result, shape))
    return result


@dataclass
class Needs:
    """What the emitted body refers to."""

    constants: dict[str, int] = field(default_factory=dict[str, int])
    """Module constants: names and values of block sizes."""
    constexprs: dict[str, str] = field(default_factory=dict[str, str])
    """Compile-time parameters: names and launch expressions."""
    parameters: set[Value] = field(default_factory=set[Value])
    helpers: dict[str, None] = field(default_factory=dict[str, None])
    """Module-level functions, in order of first use."""
    definitions: dict[str, None] = field(default_factory=dict[str, None])
    """Module-level source that stems from the user's own, in order of first use."""
    has_libdevice: bool = False
    descriptions: dict[TensorDescription, str] = field(default_factory=dict[TensorDescription, str])
    """Tensors described to the hardware, each with the name of its argument."""


def device_name(function: Function) -> str:
    """What the launched function of a module is called."""
    return f"_{identifier(function.name).lstrip('_')}"


class Spelling:
    """Names and sizes. Everything that is spelled is noted in ``needs``."""

    def __init__(self, function: Function, schedule: Schedule) -> None:
        self.function = function
        self.schedule = schedule
        self.names = NamePool()
        for op in walk_function(function):
            if isinstance(op, InlineTriton):
                self.names.reserve(names_bound(op.definitions))
        self.needs = Needs()
        self._symbol_names: dict[str, str] = {}
        self._dot_minimums = _dot_minimums(function)
        self.parameter_names = {
            parameter.value: self.names.fresh(parameter.value.name)
            for parameter in function.parameters
        }

    def find_parameter(self, value: Value) -> Expr | None:
        """A parameter's expression; None for values computed in the function."""
        if value not in self.parameter_names:
            return None
        self.needs.parameters.add(value)
        return Expr(self.parameter_names[value], is_untyped=isinstance(value.type, TileType))

    def block_name(self, block: str) -> str:
        """The module constant that holds a block's size."""
        if block not in self._symbol_names:
            name = self.names.fresh(identifier(block).upper())
            self._symbol_names[block] = name
            self.needs.constants[name] = self.schedule.symbols[block]
        return self._symbol_names[block]

    def size_name(self, size: str) -> str:
        """The compile-time parameter that holds a runtime size rounded up to a power of two."""
        if size not in self._symbol_names:
            name = self.names.fresh(f"{identifier(size).upper()}_PADDED")
            self._symbol_names[size] = name
            padded = f"next_power_of_2({self.extent(size)})"
            least = self._dot_minimums.get(size)
            self.needs.constexprs[name] = padded if least is None else f"max({padded}, {least})"
        return self._symbol_names[size]

    def extent(self, extent: Extent) -> Expr:
        """A tensor's size or stride: a literal, or the scalar parameter of that name."""
        if isinstance(extent, int):
            return literal(extent)
        parameter = self.function.find_parameter(extent)
        expr = None if parameter is None else self.find_parameter(parameter)
        if expr is None:
            raise InternalError(problem=f"no parameter holds the runtime size {extent}")
        return expr

    def dim(self, dim: Dim) -> Expr:
        """The physical size of a dimension."""
        texts = [self._factor(factor) for factor in dim.factors]
        precedence = Precedence.PRODUCT if len(texts) > 1 else Precedence.ATOM
        constant = None if dim.constant is None else self.schedule.physical(dim)
        return Expr(" * ".join(texts) or "1", precedence, constant=constant, is_untyped=True)

    def _factor(self, factor: int | str) -> str:
        if isinstance(factor, int):
            return str(self.schedule.padded.get(factor, factor))
        return self.block_name(factor) if self.function.is_block(factor) else self.size_name(factor)

    def shape(self, shape: Iterable[Dim]) -> str:
        """A shape as Triton takes it."""
        return "[" + ", ".join(str(self.dim(dim)) for dim in shape) + "]"

    def filled(self, expr: Expr, tile: TileType) -> Expr:
        """A tile of that type with every lane equal to a scalar."""
        shape, dtype = self.shape(tile.shape), triton_dtype(tile.dtype)
        is_zero = expr.constant == 0 and not str(expr).startswith("-")
        if is_zero and tile.rank:
            return call("tl.zeros", shape, dtype, shape=tile.shape)
        return call("tl.full", shape, expr, dtype, shape=tile.shape)

    @staticmethod
    def typed(expr: Expr, dtype: DType) -> Expr:
        """A scalar that says its type, which a Python number does not have."""
        return call("tl.full", "[]", expr, triton_dtype(dtype)) if expr.is_untyped else expr

    def conform(self, expr: Expr, tile: TileType) -> Expr:
        """``expr`` as a value of exactly type ``tile``: full size, with its element type."""
        if expr.is_untyped:
            is_natural = tile.rank == 0 and tile.dtype in (I32, F32, BOOL)
            return expr if is_natural else self.filled(expr, tile)
        if expr.shape == tile.shape:
            return expr
        return call("tl.broadcast_to", expr, self.shape(tile.shape), shape=tile.shape)

    def cover(self, address: Expr, shape: Shape) -> Expr:
        """Addresses repeated along the axes of ``shape`` that they do not have yet."""
        whole = broadcast_shapes(address.shape, shape)
        if not shape or address.shape == whole:
            return address
        return call("tl.broadcast_to", address, self.shape(whole), shape=whole)

    def helper(self, name: str) -> str:
        """The name of a module-level function, which is then emitted too."""
        self.needs.helpers[name] = None
        return name


def _dot_minimums(function: Function) -> dict[str, int]:
    """The least padded size of every runtime size in a product, as checks of tiles have it."""
    found: dict[str, int] = {}
    known = definitions(function.body)
    for op in (op for op in walk_function(function) if isinstance(op, Dot)):
        sides, contracted = op.result.tile.shape[-2:], op.lhs.tile.shape[-1]
        sizes = (LEAST_CONTRACTED, LEAST_CONTRACTED, least_contracted(op, known))
        for dim, least in zip((*sides, contracted), () if ONE in sides else sizes):
            found.update({symbol: max(least, found.get(symbol, 0)) for symbol in dim.symbols})
    return found


_LAUNCH_OPTIONS = {
    *("num_warps", "num_stages", "num_ctas", "maxnreg", "warmup", "stream", "device", "debug"),
    *("launch_cooperative_grid", "launch_pdl", "waves_per_eu", "matrix_instr_nonkdim", "kpack"),
    *("enable_fp_fusion", "enable_reflect_ftz"),
}
"""Keyword arguments of a launch: a parameter of that name would get two values."""

RESERVED = frozenset(
    {*dir(builtins), *keyword.kwlist, *keyword.softkwlist, "tl", "triton", "torch", "libdevice"}
    | {"launch", "grid"}
    | _LAUNCH_OPTIONS
)

_FLOATS_OF_BYTES = {F8E4M3: "8e4nv", F8E5M2: "8e5"}
SIGNATURE_DTYPES = {
    **{dtype: dtype.name for dtype in ALL_DTYPES},
    **{dtype: f"fp{dtype.bits}" for dtype in (F16, F32, F64)},
    **{dtype: f"fp{rest}" for dtype, rest in _FLOATS_OF_BYTES.items()},
    BOOL: "i1",
}


def triton_dtype(dtype: DType) -> str:
    """How ``triton.language`` spells an element type."""
    if dtype in _FLOATS_OF_BYTES:
        return f"tl.float{_FLOATS_OF_BYTES[dtype]}"
    return "tl.int1" if dtype.is_bool else f"tl.{dtype.long_name}"


def identifier(hint: str) -> str:
    """The hint with everything an identifier may not contain replaced."""
    text = re.sub(r"\W", "_", hint, flags=re.ASCII)
    return f"_{text}" if not text or text[0].isdigit() else text


def axis_suffix(block: str) -> str:
    """What tells the variables of tile axes apart: ``tile_m`` gives ``_m``, ``tile`` nothing."""
    suffix = block.removeprefix("tile").removeprefix("block_").strip("_")
    return f"_{suffix}" if suffix else ""


def names_bound(source: str) -> set[str]:
    """Names that Python source binds at its top level or assigns anywhere."""
    nodes = list(ast.walk(ast.parse(source)))
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    aliases = [a for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names]
    functions = {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
    return stored | functions | {a.asname or a.name.partition(".")[0] for a in aliases}


class NamePool:
    """Hands out each identifier once."""

    def __init__(self) -> None:
        self._taken: set[str] = set(RESERVED)
        self._handed_out: list[str] = []

    @property
    def moment(self) -> int:
        """Now, for ``fresh``: later than all names handed out so far."""
        return len(self._handed_out)

    def fresh(self, hint: str, since: int | None = None) -> str:
        """The hint itself, or numbered when it is taken.

        ``since``: the moment a place was passed that the name is to be assigned at. Lines between
        there and here may have used and released the name, and would now assign it again.
        """
        stem = identifier(hint)
        name, counter = stem, 1
        between = () if since is None else self._handed_out[since:]
        while name in self._taken or name in between:
            name, counter = f"{stem}_{counter}", counter + 1
        self._taken.add(name)
        self._handed_out.append(name)
        return name

    def reserve(self, names: Iterable[str]) -> None:
        """Never hand out these."""
        self._taken.update(names)

    def release(self, name: str) -> None:
        """Let a name that is out of scope be used again."""
        if name not in RESERVED:
            self._taken.discard(name)
