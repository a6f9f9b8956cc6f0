"""Writes docs/ir.md from the op catalog, so that the IR's reference cannot go stale.

Run ``python -m tools.generate_ir_docs``; a test compares the file with what this would write.
"""

from __future__ import annotations

import inspect
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any

from tilesmith.dtypes import ALL_DTYPES
from tilesmith.ir.operation import ATTRIBUTE, OPERAND, OPERANDS, REGION, Operation
from tilesmith.ir.ops.catalog import FAMILIES
from tilesmith.ir.ops.elementwise import SCALAR_FUNCTIONS, ScalarFunction
from tilesmith.ir.printer import format_attribute
from tilesmith.ir.traits import Trait

OUTPUT = Path(__file__).parents[1] / "docs" / "ir.md"

INTRODUCTION = """\
# The IR

This file is generated from the op catalog by `python -m tools.generate_ir_docs`; do not edit it.

A function has parameters (tensors and scalars), block symbols, runtime sizes, and a body: scalar
ops that compute loop bounds, then one or more `grid` ops. Values are immutable and assigned once.
An op has operands (values), attributes (plain data), regions (nested lists of ops) and results.
What passes may do with an op they do not know follows from its traits.

In the signatures below `x` is one operand, `[x]` a list of operands, `x?` an operand that may be
absent, `{name}` an attribute and `(name)` a region.
"""


def _default_of(field: Field[Any]) -> str:
    return "" if field.default is MISSING else f" = {format_attribute(field.default)}"


def _signature(op: type[Operation]) -> str:
    optional = {field.name for field in op.fields_of(OPERAND) if field.default is None}
    parts = [f"{f.name}?" if f.name in optional else f.name for f in op.fields_of(OPERAND)]
    parts += [f"[{field.name}]" for field in op.fields_of(OPERANDS)]
    parts += [f"{{{field.name}{_default_of(field)}}}" for field in op.fields_of(ATTRIBUTE)]
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
        f"{_results(op).capitalize()}; {_traits(op)}.", "",
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
    sections = [INTRODUCTION, *families, _scalar_functions(), _element_types()]
    return "\n".join(sections).rstrip("\n") + "\n"


def main() -> None:
    """Write the file."""
    OUTPUT.write_text(render(), encoding="utf-8")
    print(f"wrote {OUTPUT}")


if __name__ == "__main__":
    main()
