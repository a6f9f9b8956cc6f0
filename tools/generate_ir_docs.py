"""Writes docs/ir.md from the op catalog, so that the IR's reference cannot go stale.

Run ``python -m tools.generate_ir_docs``; a test compares the file with what this would write.
"""

from __future__ import annotations

import inspect
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any

from tilesmith.dtypes import ALL_DTYPES
from tilesmith.ir import axis_roles
from tilesmith.ir.operation import ATTRIBUTE, OPERAND, OPERANDS, REGION, Operation, Trait
from tilesmith.ir.ops.catalog import FAMILIES
from tilesmith.ir.ops.elementwise import SCALAR_FUNCTIONS, ScalarFunction
from tilesmith.ir.printer import format_attribute

OUTPUT = Path(__file__).parents[1] / "docs" / "ir.md"

INTRODUCTION = """\
# The IR

This file is generated from the op catalog by `python -m tools.generate_ir_docs`; do not edit it.

## The whole IR on one page

**A function** has parameters (tensors and scalars), block symbols, runtime sizes, and a body:
scalar ops that compute loop bounds, then one or more `grid` ops. **An op** has operands (values),
attributes (plain data), regions (nested lists of ops) and results. **A value** is immutable and
assigned once; its type is one of two (a *program* is one run of a grid's body; a *lane* is one
position of a tile, which is *valid* if it lies inside the range of its loop):

| type | text | what it is |
|---|---|---|
| tile | `f32[m, 4*n]` | computed values of one program; a tile of rank 0 is a scalar |
| tensor | `tensor<f32[M, N], strides=[N, 1], alias=0>` | memory the caller owns |

A dimension of a tile is a product of integers and symbols: blocks (tuned or fixed sizes) and
runtime sizes. Two axes are the same exactly when their dimensions are equal.

What passes may do with an op they do not know follows from its traits and from its **axis roles**:
which lanes along each operand axis one lane of the result comes from.

"""

SIGNATURES = """\
In signatures `x` is one operand, `[x]` a list of operands, `x?` an operand that may be
absent, `{name}` an attribute and `(name)` a region.
"""


def _roles() -> str:
    """The table of roles, which stands in the docstring of the module that defines them."""
    lines = (axis_roles.__doc__ or "").split("=\n")[1].splitlines()
    rows = [line.split(None, 1) for line in lines if line and not line.startswith("=")]
    cells = [f"| {role} | {text.replace('``', '`')} |" for role, text in rows]
    return "\n".join(["| role | the lanes of the operand |", "|---|---|", *cells, ""])


def _axes(op: type[Operation]) -> str:
    has_tiles = op.num_results != 0 or op.form.roles
    return op.form.describe() if has_tiles else "no tiles"


def _one_line(op: type[Operation]) -> str:
    return f"{_signature(op, with_defaults=False):<64}  {_axes(op).replace('`', '')}"


def _overview() -> str:
    lines = ["A result axis that no operand axis goes to is new. Every op, by family:", "", "```"]
    for name, ops in FAMILIES.items():
        lines += [f"-- {name.replace('_', ' ')}", *map(_one_line, ops)]
    return "\n".join([*lines, "```", ""])


def _default_of(field: Field[Any]) -> str:
    return "" if field.default is MISSING else f" = {format_attribute(field.default)}"


def _signature(op: type[Operation], *, with_defaults: bool = True) -> str:
    optional = {field.name for field in op.fields_of(OPERAND) if field.default is None}
    parts = [f"{f.name}?" if f.name in optional else f.name for f in op.fields_of(OPERAND)]
    parts += [f"[{field.name}]" for field in op.fields_of(OPERANDS)]
    for field in op.fields_of(ATTRIBUTE):
        parts.append(f"{{{field.name}{_default_of(field) if with_defaults else ''}}}")
    parts += [f"({field.name})" for field in op.fields_of(REGION)]
    return f"{op.name} " + ", ".join(parts) if parts else op.name


def _results(op: type[Operation]) -> str:
    if op.num_results is None:
        return "as many results as carried values"
    return ("no result", "one result")[op.num_results]


def _traits(op: type[Operation]) -> str:
    names = [trait.name.lower() for trait in Trait if trait.name and trait in op.traits]
    return ", ".join(names) if op.traits is not Trait.NONE else "no traits"


def _describe_op(op: type[Operation]) -> str:
    return "\n".join([
        f"### `{op.name}`", "",
        "```", _signature(op), "```", "",
        f"{_results(op).capitalize()}; {_traits(op)}. Operand axes: {_axes(op)}.", "",
        inspect.cleandoc(op.__doc__ or ""), "",
    ])  # fmt: skip


def _describe_family(name: str, ops: tuple[type[Operation], ...]) -> str:
    module = inspect.getmodule(ops[0])
    assert module is not None
    introduction = inspect.cleandoc(module.__doc__ or "")
    heading = f"## {name.replace('_', ' ').capitalize()} (`ir/ops/{name}.py`)"
    return "\n".join([heading, "", introduction, "", *map(_describe_op, ops)])


def _scalar_row(function: ScalarFunction) -> str:
    marks = [
        word
        for word, holds in (
            ("commutative", function.is_commutative),
            ("transcendental", function.is_transcendental),
        )
        if holds
    ]
    result = function.result.value
    return f"| `{function.name}` | {function.arity} | {result} | {', '.join(marks)} |"


def _scalar_functions() -> str:
    rows = map(_scalar_row, SCALAR_FUNCTIONS.values())
    header = ["| function | operands | result | |", "|---|---|---|---|"]
    return "\n".join(["## Scalar functions of `elementwise`", "", *header, *rows, ""])


def _element_types() -> str:
    header = ["| name | kind | bits | precision |", "|---|---|---|---|"]
    rows = [f"| `{d.name}` | {d.kind.value} | {d.bits} | {d.precision} |" for d in ALL_DTYPES]
    return "\n".join(["## Element types", "", *header, *rows, ""])


def render() -> str:
    """The whole of docs/ir.md."""
    families = [_describe_family(name, ops) for name, ops in FAMILIES.items()]
    page = INTRODUCTION + _roles()
    sections = [
        page,
        _overview() + "\n" + SIGNATURES,
        *families,
        _scalar_functions(),
        _element_types(),
    ]
    return "\n".join(sections).rstrip("\n") + "\n"


def main() -> None:
    """Write the file."""
    OUTPUT.write_text(render(), encoding="utf-8")
    print(f"wrote {OUTPUT}")


if __name__ == "__main__":
    main()
