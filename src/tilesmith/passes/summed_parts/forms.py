"""The form of a function that a ``structure`` names."""

from __future__ import annotations

from tilesmith.ir.function import Function
from tilesmith.passes.converted_operands.ahead import convert_ahead
from tilesmith.passes.split_rows import Form, split_rows
from tilesmith.passes.summed_parts.split import sum_in_parts


def _convert_then_sum(function: Function) -> Function | None:
    made = convert_ahead(function)
    return None if made is None else sum_in_parts(made)


_OF_PRODUCTS = {
    "converted_ahead": convert_ahead,
    "converted_parts": _convert_then_sum,
    "sum_parts": sum_in_parts,
}


def split_as(function: Function, name: str) -> Function | None:
    """The same computation in the form of that name; None where that is not certain."""
    make = _OF_PRODUCTS.get(name)
    return split_rows(function, Form(name)) if make is None else make(function)
