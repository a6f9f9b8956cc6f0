"""IR to text, which has all of it but locations: these are comments.

Attributes equal to their default are left out; variadic operands stand in brackets unless they are
the only operands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from itertools import count
from typing import Any

from tilesmith.ir.function import Block, Function
from tilesmith.ir.operation import NAMED, OPERAND, OPERANDS, Operation, Region
from tilesmith.ir.types import Value


class _Names:
    """Unique names: the hint where there is one, numbered when taken."""

    def __init__(self) -> None:
        self._names: dict[Value, str] = {}
        self._taken: set[str] = set()
        self._numbers = count()

    def define(self, value: Value) -> str:
        name = value.name or str(next(self._numbers))
        suffixes = count(1)
        while name in self._taken:
            name = f"{value.name}_{next(suffixes)}"
        self._taken.add(name)
        self._names[value] = name
        return f"%{name}"

    def __getitem__(self, value: Value) -> str:
        """The name of a value; the verifier prints functions that use undefined ones too."""
        if value not in self._names:
            return f"%undefined.{value.name}"
        return f"%{self._names[value]}"


def format_attribute(value: Any) -> str:
    """An attribute as text: Python literals, tuples in brackets, ``none``, ``true``, ``false``."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(format_attribute, value)) + "]"
    return repr(value)


def _format_operands(op: Operation, names: _Names) -> str:
    parts: list[str] = []
    named: list[str] = []
    for field in op.fields_of(OPERAND):
        value = getattr(op, field.name)
        if not field.metadata[NAMED]:
            parts.append("none" if value is None else names[value])
        elif value is not None:
            named.append(f"{field.name}={names[value]}")
    for field in op.fields_of(OPERANDS):
        shown = ", ".join(names[value] for value in getattr(op, field.name))
        is_alone = len(op.fields_of(OPERANDS)) == 1 and not op.fields_of(OPERAND)
        parts.append(shown if is_alone else f"[{shown}]")
    return ", ".join((*parts, *named))


def _format_attributes(attributes: dict[str, Any]) -> str:
    shown = ", ".join(f"{name}={format_attribute(value)}" for name, value in attributes.items())
    return f" {{{shown}}}" if shown else ""


def _without_defaults(item: Operation | Block, names: Iterable[str]) -> dict[str, Any]:
    """The named fields whose value is not the default."""
    defaults = {field.name: field.default for field in fields(item)}
    values = {name: getattr(item, name) for name in names}
    return {k: v for k, v in values.items() if v != defaults[k]}


def _format_region(region: Region, names: _Names, indent: int) -> tuple[str, list[str]]:
    """The opening, which continues the line before, and the lines inside."""
    args = ", ".join(f"{names.define(arg)}: {arg.type}" for arg in region.args)
    lines: list[str] = []
    for op in region.ops:
        lines.extend(_format_op(op, names, indent + 1))
    return f" ({args}) {{", lines


def _format_op(op: Operation, names: _Names, indent: int) -> list[str]:
    attributes = _format_attributes(_without_defaults(op, op.attributes()))
    text = f"{op.name}({_format_operands(op, names)}){attributes}"
    regions = [_format_region(region, names, indent) for region in op.regions()]
    # Results are named after the regions: a loop's result may not be used inside it.
    if op.results:
        types = ", ".join(str(value.type) for value in op.results)
        text = f"{', '.join(names.define(v) for v in op.results)} = {text} : {types}"
    lines = ["  " * indent + text]
    for opening, inner in regions:
        lines[-1] += opening
        lines += [*inner, "  " * indent + "}"]
    lines[0] += f"  // {op.loc}" if op.loc.line else ""
    return lines


def _format_block(block: Block) -> str:
    shown = _without_defaults(block, ("fixed", "slot", "extent", "low", "high"))
    return f"  block {block.name}{_format_attributes(shown)}"


def print_function(function: Function) -> str:
    """The whole function as text."""
    names = _Names()
    lines = [f"func @{function.name} {{"]
    for parameter in function.parameters:
        value = parameter.value
        source = format_attribute(parameter.source)
        lines.append(f"  param {names.define(value)}: {value.type} from {source}")
    lines.extend(_format_block(block) for block in function.blocks)
    lines.extend(f"  size {size.name} {{hint={size.hint}}}" for size in function.sizes)
    lines.extend(
        f"  tunable {name} {{value={format_attribute(value)}}}" for name, value in function.tunables
    )
    for op in function.body.ops:
        lines.extend(_format_op(op, names, 1))
    lines.append("}")
    return "\n".join(lines) + "\n"
