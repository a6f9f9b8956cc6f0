"""The rule of every op. Checked against the catalog, so a new op cannot be forgotten here."""

from __future__ import annotations

from tilesmith.backends.triton.emission.emitter import Rules
from tilesmith.backends.triton.ops import (
    control_flow,
    elementwise,
    inline,
    memory,
    program_ids,
    reduction,
    shape,
)
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, GroupBarrier, If, Loop, While, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.foreign import Assert, Breakpoint, InlineAsm, InlineTriton, Print
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, Mask, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.ir.ops.rearrangement import Gather, Join, Select, Sort
from tilesmith.ir.ops.reduction import Reduce, ReduceWith, Scan, ScanWith
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape

RULES: Rules = {
    Elementwise: elementwise.emit_elementwise,
    Cast: elementwise.emit_cast,
    Full: control_flow.emit_full,
    TileIndex: control_flow.emit_tile_index,
    Arange: control_flow.emit_arange,
    BlockSize: control_flow.emit_block_size,
    Mask: control_flow.emit_mask,
    Load: memory.emit_load,
    Store: memory.emit_store,
    Atomic: memory.emit_atomic,
    ProgramBarrier: memory.emit_program_barrier,
    Dot: reduction.emit_dot,
    Reduce: reduction.emit_reduce,
    Scan: reduction.emit_scan,
    ReduceWith: reduction.emit_with,
    ScanWith: reduction.emit_with,
    ExpandDims: shape.emit_expand_dims,
    Broadcast: shape.emit_broadcast,
    Reshape: shape.emit_reshape,
    Permute: shape.emit_permute,
    Join: shape.emit_join,
    Select: shape.emit_select,
    Gather: shape.emit_gather,
    Sort: shape.emit_sort,
    Grid: control_flow.emit_part,
    GridBarrier: program_ids.emit_grid_barrier,
    GroupBarrier: program_ids.emit_group_barrier,
    Loop: control_flow.emit_loop,
    While: control_flow.emit_while,
    If: control_flow.emit_if,
    Print: inline.emit_print,
    Breakpoint: inline.emit_breakpoint,
    Assert: inline.emit_assert,
    InlineTriton: inline.emit_inline_triton,
    InlineAsm: inline.emit_inline_asm,
    Yield: control_flow.emit_part,
}
