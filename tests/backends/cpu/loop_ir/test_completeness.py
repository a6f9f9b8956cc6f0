"""Every element and statement of the loop IR can be printed and emitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import pytest

from tilesmith.backends.cpu.emission.elements import ELEMENT_EMITTERS
from tilesmith.backends.cpu.emission.kernel import STATEMENT_EMITTERS
from tilesmith.backends.cpu.line_marks import Mark
from tilesmith.backends.cpu.loop_ir.elements import Element
from tilesmith.backends.cpu.loop_ir.statements import Statement
from tilesmith.backends.cpu.printing.elements import ELEMENT_TEXTS
from tilesmith.backends.cpu.printing.kernel import STATEMENT_TEXTS


@pytest.mark.parametrize("table", [ELEMENT_EMITTERS, ELEMENT_TEXTS], ids=["code", "text"])
def test_every_element_has_a_rule(table: Mapping[type, object]) -> None:
    assert set(table) == set(Element.__subclasses__())


@pytest.mark.parametrize("table", [STATEMENT_EMITTERS, STATEMENT_TEXTS], ids=["code", "text"])
def test_every_statement_has_a_rule(table: Mapping[type, object]) -> None:
    # Marks are put into what is emitted for readers of assembly, and never printed.
    assert set(table) - {Mark} == set(get_args(Statement))
