"""How the interpreter runs each op of the catalog: the tables of all families."""

from __future__ import annotations

from tilesmith.interpreter import (
    arrangement,
    control_flow,
    debugging,
    elementwise,
    inline,
    matmul,
    memory,
    reduction,
    stepped_grids,
)
from tilesmith.interpreter.frame import Evaluator
from tilesmith.ir.operation import Operation

EVALUATORS: dict[type[Operation], Evaluator] = {
    **elementwise.EVALUATORS,
    **arrangement.EVALUATORS,
    **memory.EVALUATORS,
    **matmul.EVALUATORS,
    **reduction.EVALUATORS,
    **control_flow.EVALUATORS,
    **stepped_grids.EVALUATORS,
    **debugging.EVALUATORS,
    **inline.EVALUATORS,
}
