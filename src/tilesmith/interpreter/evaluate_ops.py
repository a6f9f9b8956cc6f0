"""The table of evaluators: how the interpreter runs each op of the catalog."""

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
from tilesmith.ir.ops.combine import ReduceWith, ScanWith
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, GroupBarrier, If, Loop, While, Yield
from tilesmith.ir.ops.debugging import Breakpoint, Print
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, Mask, TileIndex
from tilesmith.ir.ops.inline import InlineAsm, InlineTriton
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.ir.ops.rearrangement import Gather, Join, Select, Sort
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.scan import Scan
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape

EVALUATORS: dict[type[Operation], Evaluator] = {
    Elementwise: elementwise.evaluate_elementwise,
    Cast: elementwise.evaluate_cast,
    Full: arrangement.evaluate_full,
    TileIndex: arrangement.evaluate_tile_index,
    Arange: arrangement.evaluate_arange,
    BlockSize: arrangement.evaluate_block_size,
    Mask: arrangement.evaluate_mask,
    Load: memory.evaluate_load,
    Store: memory.evaluate_store,
    Atomic: memory.evaluate_atomic,
    ProgramBarrier: memory.evaluate_program_barrier,
    Dot: matmul.evaluate_dot,
    Reduce: reduction.evaluate_reduce,
    Scan: reduction.evaluate_scan,
    ReduceWith: reduction.evaluate_reduce_with,
    ScanWith: reduction.evaluate_scan_with,
    ExpandDims: arrangement.evaluate_expand_dims,
    Broadcast: arrangement.evaluate_broadcast,
    Reshape: arrangement.evaluate_reshape,
    Permute: arrangement.evaluate_permute,
    Join: arrangement.evaluate_join,
    Select: arrangement.evaluate_select,
    Gather: arrangement.evaluate_gather,
    Sort: arrangement.evaluate_sort,
    Grid: control_flow.evaluate_grid,
    GridBarrier: control_flow.evaluate_grid_barrier,
    GroupBarrier: stepped_grids.evaluate_group_barrier,
    Loop: control_flow.evaluate_loop,
    While: control_flow.evaluate_while,
    If: control_flow.evaluate_if,
    Print: debugging.evaluate_print,
    Breakpoint: debugging.evaluate_breakpoint,
    InlineTriton: inline.evaluate_inline,
    InlineAsm: inline.evaluate_inline,
    Yield: control_flow.evaluate_yield,
}
