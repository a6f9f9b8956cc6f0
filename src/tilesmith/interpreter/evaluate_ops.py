"""The table of evaluators: how the interpreter runs each op of the catalog."""

from __future__ import annotations

from tilesmith.interpreter import (
    atomics,
    combine,
    control_flow,
    debugging,
    elementwise,
    indexing,
    inline,
    matmul,
    memory,
    rearrangement,
    reduction,
    scan,
    shape,
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
    ReduceWith: combine.evaluate_reduce_with,
    ScanWith: combine.evaluate_scan_with,
    ExpandDims: shape.evaluate_expand_dims,
    Broadcast: shape.evaluate_broadcast,
    Reshape: shape.evaluate_reshape,
    Permute: shape.evaluate_permute,
    Join: rearrangement.evaluate_join,
    Select: rearrangement.evaluate_select,
    Gather: rearrangement.evaluate_gather,
    Sort: rearrangement.evaluate_sort,
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
