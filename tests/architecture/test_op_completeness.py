"""Every op and every scalar function has its rule in the interpreter and in each backend.

The tables are compared with the catalog, so an op added to the IR and forgotten elsewhere fails
here with its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tilesmith.backends.cpu.backend import CPU_BACKEND
from tilesmith.backends.cpu.lowering.nests import ELEMENT_RULES
from tilesmith.backends.cpu.math.scalar_functions import SCALAR_FUNCTIONS_LLVM
from tilesmith.backends.cpu.planning.coordinates import is_virtual
from tilesmith.backends.triton.backend import RULES
from tilesmith.backends.triton.ops.elementwise import SCALAR_TEMPLATES
from tilesmith.interpreter.run import EVALUATORS
from tilesmith.interpreter.scalar_functions import SCALAR_FUNCTIONS_TORCH
from tilesmith.ir.axis_roles import FORMS, LANES_MEET, AxisForm, Kept, Mixed
from tilesmith.ir.operation import Operation, Trait, attribute, op, operand
from tilesmith.ir.ops.catalog import OPS_BY_NAME
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, If, Loop, While, Yield
from tilesmith.ir.ops.elementwise import SCALAR_FUNCTIONS
from tilesmith.ir.ops.foreign import Print
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, ProgramBarrier, Store
from tilesmith.ir.ops.rearrangement import Sort
from tilesmith.ir.ops.reduction import Reduce, ReduceWith, Scan, ScanWith
from tilesmith.ir.types import Value
from tilesmith.passes.squeeze_unit_axes import FORM_RULES

PLANNED = (
    Grid, GridBarrier, Loop, While, If, Yield, Dot, Store, Atomic, ProgramBarrier, Reduce, Sort,
    Scan, ReduceWith, ScanWith, Print, *CPU_BACKEND.refused_ops,
)  # fmt: skip
"""Ops that native code has steps for; all others are computed element by element."""


def names(ops: Mapping[type[Operation], Callable[..., object]]) -> set[str]:
    return {op.name for op in ops}


@pytest.mark.parametrize("table", [EVALUATORS, RULES], ids=["interpreter", "triton"])
def test_every_op_has_exactly_one_rule(table: Mapping[type[Operation], Callable[..., object]]):
    assert names(table) == set(OPS_BY_NAME)


def test_every_op_of_native_code_has_a_step_or_a_rule():
    planned = {op.name for op in PLANNED}
    assert names(ELEMENT_RULES) | planned == set(OPS_BY_NAME)
    assert not names(ELEMENT_RULES) & planned
    assert {op.name for op in OPS_BY_NAME.values() if is_virtual(op)} == names(ELEMENT_RULES)


@pytest.mark.parametrize(
    "table",
    [SCALAR_FUNCTIONS_TORCH, SCALAR_TEMPLATES, SCALAR_FUNCTIONS_LLVM],
    ids=["interpreter", "triton", "cpu"],
)
def test_every_scalar_function_has_exactly_one_row(table: Mapping[str, object]):
    assert set(table) == set(SCALAR_FUNCTIONS)


@pytest.mark.parametrize("op", OPS_BY_NAME.values(), ids=lambda op: op.name)
def test_every_op_is_documented(op: type[Operation]):
    assert op.__doc__
    assert not op.__doc__.startswith(op.__name__ + "("), "the docstring dataclass makes by default"


def test_catalog_keys_are_the_names_of_the_ops():
    assert all(name == op.name for name, op in OPS_BY_NAME.items())


@pytest.mark.parametrize("cls", OPS_BY_NAME.values(), ids=lambda cls: cls.name)
def test_every_op_declares_its_axis_roles(cls: type[Operation]):
    assert type(cls.form) in FORMS
    assert cls.form.describe()
    if cls.form.roles & LANES_MEET:
        assert cls.neutral is not Operation.neutral


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_every_form_of_axis_roles_can_be_squeezed(form: type[AxisForm]):
    assert form in FORM_RULES


def test_an_op_without_axis_roles_does_not_load():
    with pytest.raises(TypeError, match="'nameless' does not declare its axis roles"):

        @op("nameless", Trait.PURE)
        class _Nameless(Operation):  # pyright: ignore[reportUnusedClass]
            x: Value = operand()


def test_an_op_that_mixes_lanes_must_say_what_is_neutral():
    with pytest.raises(TypeError, match="'shuffle' does not say what invalid lanes must hold"):

        @op("shuffle", Trait.PURE, axes=Mixed("axis"))
        class _Shuffle(Operation):  # pyright: ignore[reportUnusedClass]
            x: Value = operand()
            axis: int = attribute()


def test_axis_roles_name_a_field_of_the_op():
    with pytest.raises(TypeError, match="has no field 'axes'"):

        @op("fade", Trait.PURE, axes=Kept("axes"))
        class _Fade(Operation):  # pyright: ignore[reportUnusedClass]
            x: Value = operand()
