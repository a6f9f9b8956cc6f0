"""Code that the user wrote in Triton or assembly, and what is printed while a kernel runs."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from textwrap import dedent

from typing_extensions import override

import tilesmith.exc as errors
from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.expressions import Expr, Precedence, call
from tilesmith.backends.triton.emission.spelling import names_bound, triton_dtype
from tilesmith.ir.ops.foreign import Assert, Breakpoint, InlineAsm, InlineTriton, Print
from tilesmith.ir.types import TensorType, Value


def emit_inline_triton(emitter: Emitter, op: InlineTriton) -> None:
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


def emit_inline_asm(emitter: Emitter, op: InlineAsm) -> None:
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


def emit_print(emitter: Emitter, op: Print) -> None:
    """Triton's own print: it adds the program and the index of each element."""
    prefix = _quoted(op.prefix.replace("%", "%%"))
    values = [str(emitter.exact(value)) for value in op.values]
    emitter.writer.statement("tl.device_print", [prefix, *values])


def emit_assert(emitter: Emitter, op: Assert) -> None:
    """Triton's own assertion: it checks where Triton debugs."""
    arguments = [str(emitter.exact(op.condition)), _quoted(op.message)]
    emitter.writer.statement("tl.device_assert", arguments)


def emit_breakpoint(emitter: Emitter, op: Breakpoint) -> None:
    """A GPU cannot stop in a debugger."""
    raise errors.BreakpointInDeviceLoopRequiresInterpret(loc=op.loc)
