"""Torch's own descriptions of its functions: what to call, and on which inputs.

The private test module of torch is where they live. What comes out is a list of ``Operator``: one
for each spelling (aliases included), named as device code looks it up.
"""

from __future__ import annotations

import sys
import types
import unittest
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import torch

from tools.op_table.extra_operators import EXTRA_OPERATORS, ExtraOperator
from tools.op_table.samples import Sample

_MOST_SAMPLES_LOOKED_AT = 60
_NOT_FUNCTIONS = ("_", "jiterator", "item", "masked.", "sparse.")
"""Operators, and Python code around other functions."""


@dataclass(frozen=True)
class Operator:
    """One spelling of a torch function.

    Attributes:
        label: torch's name of it, with the variant.
        fn: the function.
        dtypes: element types that eager takes on the CPU.
        draw: sample inputs of an element type.
        is_elementwise: whether each element of the result comes of one element of each operand.
        row: the function's row in the table, where its own name does not say it.
    """

    label: str
    fn: Callable[..., Any]
    dtypes: frozenset[torch.dtype]
    draw: Callable[[torch.dtype], Iterable[Sample]]
    is_elementwise: bool = False
    row: str = ""


def all_operators() -> list[Operator]:
    """Every function that torch describes, and those of ours that it does not."""
    named = (info for info in _op_db() if not info.name.startswith(_NOT_FUNCTIONS))
    # Variants for other purposes (gradients, types) draw the same samples for the same function.
    infos = {(info.op, info.sample_inputs_func): info for info in named}.values()
    return [*chain.from_iterable(map(_spellings, infos)), *map(_extra, EXTRA_OPERATORS)]


def _op_db() -> list[Any]:
    if "expecttest" not in sys.modules:
        # The module wants a library of expectation tests that nothing here uses.
        stand_in: Any = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415

    return op_db


def _spellings(info: Any) -> Iterator[Operator]:
    suffix = f".{info.variant_test_name}" if info.variant_test_name else ""
    is_elementwise = type(info).__name__ in ("UnaryUfuncInfo", "BinaryUfuncInfo")

    def draw(dtype: torch.dtype) -> Iterator[Sample]:
        torch.manual_seed(0)
        drawn = info.sample_inputs("cpu", dtype, requires_grad=False)
        for found in islice(drawn, _MOST_SAMPLES_LOOKED_AT):
            yield Sample((found.input, *found.args), dict(found.kwargs))

    dtypes = frozenset(info.dtypes)
    for name, fn in [(info.name, info.op), *((alias.name, alias.op) for alias in info.aliases)]:
        row = info.name if name == info.name and fn.__name__ == "<lambda>" else ""
        yield Operator(name + suffix, fn, dtypes, draw, is_elementwise, row)


def _extra(extra: ExtraOperator) -> Operator:
    return Operator(
        extra.row, extra.fn, frozenset(extra.dtypes), extra.draw, extra.is_elementwise, extra.row
    )


def looked_up_name(operator: Operator, known: Container[str]) -> str | None:
    """The name under which device code finds the function; None if it does not."""
    own_name = getattr(operator.fn, "__name__", "")
    last = operator.label.split(".")[-1]
    spelled = operator.label.replace(".", "_")
    return next((name for name in (operator.row, own_name, spelled, last) if name in known), None)
