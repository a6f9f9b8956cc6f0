"""A function of the IR, interpreted at once."""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.interpreter.frame import prepare_function
from tilesmith.interpreter.run import Argument, run_prepared
from tilesmith.ir.function import Function


def run_function(
    function: Function,
    arguments: Mapping[str, Argument],
    sizes: Mapping[str, int],
    *,
    checked: bool = True,
    races: bool = False,
) -> None:
    """Run every grid of a function, as ``run_prepared`` does."""
    run_prepared(prepare_function(function), arguments, sizes, checked=checked, races=races)
