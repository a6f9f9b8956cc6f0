"""The table of evaluators: how the interpreter runs each op of the catalog."""

from __future__ import annotations

from tilesmith.interpreter import (
    atomics,
    control_flow,
    elementwise,
    indexing,
    matmul,
    memory,
    reduction,
    scan,
    shape,
)
from tilesmith.interpreter.frame import Evaluator
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, If, Loop, While, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, Mask, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.scan import Scan
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape

EVALUATORS: dict[type[Operation], Evaluator] = {
    Elementwise: elementwise.evaluate_elementwise,
    Cast: elementwise.evaluate_cast,
    Full: indexing.evaluate_full,
    TileIndex: indexing.evaluate_tile_index,
    Arange: indexing.evaluate_arange,
    BlockSize: indexing.evaluate_block_size,
    Mask: indexing.evaluate_mask,
    Load: memory.evaluate_load,
    Store: memory.evaluate_store,
    Atomic: atomics.evaluate_atomic,
    ProgramBarrier: memory.evaluate_program_barrier,
    Dot: matmul.evaluate_dot,
    Reduce: reduction.evaluate_reduce,
    Scan: scan.evaluate_scan,
    ExpandDims: shape.evaluate_expand_dims,
    Broadcast: shape.evaluate_broadcast,
    Reshape: shape.evaluate_reshape,
    Permute: shape.evaluate_permute,
    Grid: control_flow.evaluate_grid,
    Loop: control_flow.evaluate_loop,
    While: control_flow.evaluate_while,
    If: control_flow.evaluate_if,
    Yield: control_flow.evaluate_yield,
}
