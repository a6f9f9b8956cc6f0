"""Code that an emitted module has as it stands: our own functions, the user's Triton or assembly.

Also what is printed and checked while a kernel runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from textwrap import dedent

from typing_extensions import override

from tilesmith.backends.source_writer import Precedence
from tilesmith.backends.triton.emission.emitter import Emitter, Rules
from tilesmith.backends.triton.emission.spelling import Expr, call, names_bound, triton_dtype
from tilesmith.backends.triton.workarounds import narrow_conversions
from tilesmith.ir.ops.foreign import Assert, Breakpoint, InlineAsm, InlineTriton, Print
from tilesmith.ir.types import TensorType, Value

_HELPERS = """
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)

def _nan_min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)

def _multiply(a, b):
    return a * b

# NaN counts as the extreme; of equal elements the first one wins.
def _nan_argmax(a, i, b, j):
    is_tie = (a == b) | ((a != a) & (b != b))
    takes_a = (a > b) | ((a != a) & (b == b)) | (is_tie & (i < j))
    return tl.where(takes_a, a, b), tl.where(takes_a, i, j)

def _nan_argmin(a, i, b, j):
    is_tie = (a == b) | ((a != a) & (b != b))
    takes_a = (a < b) | ((a != a) & (b == b)) | (is_tie & (i < j))
    return tl.where(takes_a, a, b), tl.where(takes_a, i, j)

# Triton's // and % round towards zero.
def _floor_divide(a, b):
    remainder = a % b
    return a // b - ((remainder != 0) & ((remainder < 0) != (b < 0))).to(a.dtype)

def _floor_modulo(a, b):
    remainder = a % b
    return tl.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)

def _float_modulo(a, b):
    remainder = libdevice.fmod(a, b)
    return tl.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)

# From the remainder, so that the quotient is exact where a / b would round up to an integer.
def _float_floor_divide(a, b):
    remainder = libdevice.fmod(a, b)
    quotient = (a - remainder) / b
    is_above = (remainder != 0) & ((remainder < 0) != (b < 0))
    quotient = libdevice.nearbyint(tl.where(is_above, quotient - 1, quotient))
    quotient = tl.where(quotient == 0, libdevice.copysign(quotient, a / b), quotient)
    return tl.where(b == 0, a / b, quotient)

# By repeated squaring; a negative exponent gives 0 except for bases 1 and -1, as in torch.
def _integer_power(base, exponent):
    result = base * 0 + 1
    factor = base
    rest = tl.maximum(exponent, exponent * 0)
    num_bits: tl.constexpr = exponent.dtype.primitive_bitwidth
    for _ in tl.static_range(num_bits):
        result = tl.where((rest & 1) != 0, result * factor, result)
        factor = factor * factor
        rest = rest >> 1
    sign = tl.where((exponent & 1) != 0, base, base * base)
    inverse = tl.where((base == 1) | (base == -1), sign, base * 0)
    return tl.where(exponent < 0, inverse, result)

# Every thread's writes come before the count, and the count before every thread's reads. Only
# the first thread touches the counter; what it sees is handed to all.
def _wait_for_arrivals(counter, arrivals):
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    while tl.atomic_add(counter, 0, sem="acquire", scope="gpu") < arrivals:
        pass
    tl.debug_barrier()
"""
"""Remarks between the functions are for those who read this file; modules get none."""


def _by_name(text: str) -> dict[str, str]:
    code = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    names = re.findall(r"^def (\w+)", code, flags=re.MULTILINE)
    parts = re.split(r"^(?=def )", code, flags=re.MULTILINE)[1:]
    return {name: f"\n@triton.jit\n{part}" for name, part in zip(names, parts)}


HELPER_FUNCTIONS = _by_name(_HELPERS + narrow_conversions.TEXT)


def uses_libdevice(name: str) -> bool:
    """Whether a helper calls into libdevice."""
    return "libdevice." in HELPER_FUNCTIONS[name]


def _emit_inline_triton(emitter: Emitter, op: InlineTriton) -> None:
    """The statements with their arguments filled in; the last one is assigned to the results."""
    if op.definitions:
        emitter.spelling.needs.definitions[op.definitions] = None
    # Arguments are filled in last: their text may have names that the statements assign.
    marks = [f"__argument_{number}" for number in range(len(op.args))]
    marked = dedent(op.source).strip().format(*marks, **dict(zip(op.names, marks)))
    arguments = {mark: _argument(emitter, value) for mark, value in zip(marks, op.args)}
    tree = _Filler(emitter, marked, arguments).visit(ast.parse(marked))
    statements: list[ast.stmt] = tree.body
    last = statements.pop() if op.results else None
    for statement in statements:
        for line in ast.unparse(statement).splitlines():
            emitter.writer.line(line)
    if isinstance(last, ast.Expr):
        for name, value in _assign_results(emitter, op.results, Expr(ast.unparse(last.value))):
            _check_type(emitter, name, value)


def _argument(emitter: Emitter, value: Value) -> str:
    if isinstance(value.type, TensorType):
        return str(emitter.expr(value))
    return emitter.exact(value).at(Precedence.ATOM)


class _Filler(ast.NodeTransformer):
    """Fills arguments in, and gives the statements' own variables names that nothing else has."""

    def __init__(self, emitter: Emitter, source: str, arguments: Mapping[str, str]) -> None:
        taken = emitter.spelling.names
        self._names = {name: taken.fresh(name) for name in sorted(names_bound(source))}
        self._arguments = arguments

    @override
    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._arguments:
            return ast.parse(self._arguments[node.id], mode="eval").body
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


def _assign_results(
    emitter: Emitter, results: tuple[Value, ...], made: Expr
) -> list[tuple[str, Value]]:
    names = [emitter.spelling.names.fresh(emitter.name_hint(value)) for value in results]
    emitter.assign(", ".join(names), made)
    for name, value in zip(names, results):
        emitter.bind(value, name)
    return list(zip(names, results))


def _check_type(emitter: Emitter, name: str, value: Value) -> None:
    """Let Triton say so when the code gives something else than was promised."""
    tile = value.tile
    dtype, shape = triton_dtype(tile.dtype), emitter.spelling.shape(tile.shape)
    promised = f"{tile.dtype}{shape}"
    conditions = [f"{name}.dtype == {dtype}"]
    if tile.rank:
        conditions.append(f"{name}.shape == {shape}")
    for condition in conditions:
        message = f'"inline code must give {promised}, as output_like says"'
        emitter.writer.statement("tl.static_assert", [condition, message])


def _emit_inline_asm(emitter: Emitter, op: InlineAsm) -> None:
    """Triton's own function for it."""
    tiles = [result.tile for result in op.results]
    dtypes = [triton_dtype(tile.dtype) for tile in tiles]
    dtype = dtypes[0] if len(dtypes) == 1 else f"({', '.join(dtypes)})"
    args = ", ".join(str(emitter.exact(value)) for value in op.args)
    texts = (_quoted(op.asm), _quoted(op.constraints), f"[{args}]", dtype)
    options = (f"is_pure={op.is_pure}", f"pack={op.pack}")
    made = call("tl.inline_asm_elementwise", *texts, *options)
    _assign_results(emitter, op.results, made)


def _quoted(text: str) -> str:
    """A Python literal in the style of generated code."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'.replace("\t", "\\t")


def _emit_print(emitter: Emitter, op: Print) -> None:
    """Triton's own print: it adds the program and the index of each element."""
    prefix = _quoted(op.prefix.replace("%", "%%"))
    values = [str(emitter.exact(value)) for value in op.values]
    emitter.writer.statement("tl.device_print", [prefix, *values])


def _emit_assert(emitter: Emitter, op: Assert) -> None:
    """Triton's own assertion: it checks where Triton debugs."""
    arguments = [str(emitter.exact(op.condition)), _quoted(op.message)]
    emitter.writer.statement("tl.device_assert", arguments)


def _emit_breakpoint(emitter: Emitter, op: Breakpoint) -> None:
    """For Triton's interpreter: traces for a device have no breakpoints."""
    emitter.writer.statement("breakpoint", [])


RULES: Rules = {
    Print: _emit_print,
    Breakpoint: _emit_breakpoint,
    Assert: _emit_assert,
    InlineTriton: _emit_inline_triton,
    InlineAsm: _emit_inline_asm,
}
