"""The rule of every op. Checked against the catalog, so a new op cannot be forgotten here."""

from __future__ import annotations

from tilesmith.backends.triton.emission.emitter import Rules
from tilesmith.backends.triton.ops.control_flow import emit_if, emit_loop, emit_while, emit_yield
from tilesmith.backends.triton.ops.elementwise import emit_cast, emit_elementwise
from tilesmith.backends.triton.ops.indexing import (
    emit_arange,
    emit_block_size,
    emit_full,
    emit_mask,
    emit_tile_index,
)  # fmt: skip
from tilesmith.backends.triton.ops.inline import (
    emit_breakpoint,
    emit_inline_asm,
    emit_inline_triton,
    emit_print,
)
from tilesmith.backends.triton.ops.matmul import emit_dot
from tilesmith.backends.triton.ops.memory import (
    emit_atomic,
    emit_load,
    emit_program_barrier,
    emit_store,
)  # fmt: skip
from tilesmith.backends.triton.ops.program_ids import (
    emit_grid,
    emit_grid_barrier,
    emit_group_barrier,
)
from tilesmith.backends.triton.ops.rearrangement import REARRANGEMENT_RULES
from tilesmith.backends.triton.ops.reduction import (
    emit_reduce,
    emit_reduce_with,
    emit_scan,
    emit_scan_with,
)
from tilesmith.backends.triton.ops.shape import (
    emit_broadcast,
    emit_expand_dims,
    emit_permute,
    emit_reshape,
)  # fmt: skip
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, GroupBarrier, If, Loop, While, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.foreign import Breakpoint, InlineAsm, InlineTriton, Print
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, Mask, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.ir.ops.reduction import Reduce, ReduceWith, Scan, ScanWith
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape

RULES: Rules = {
    Elementwise: emit_elementwise,
    Cast: emit_cast,
    Full: emit_full,
    TileIndex: emit_tile_index,
    Arange: emit_arange,
    BlockSize: emit_block_size,
    Mask: emit_mask,
    Load: emit_load,
    Store: emit_store,
    Atomic: emit_atomic,
    ProgramBarrier: emit_program_barrier,
    Dot: emit_dot,
    Reduce: emit_reduce,
    Scan: emit_scan,
    ReduceWith: emit_reduce_with,
    ScanWith: emit_scan_with,
    ExpandDims: emit_expand_dims,
    Broadcast: emit_broadcast,
    Reshape: emit_reshape,
    Permute: emit_permute,
    **REARRANGEMENT_RULES,
    Grid: emit_grid,
    GridBarrier: emit_grid_barrier,
    GroupBarrier: emit_group_barrier,
    Loop: emit_loop,
    While: emit_while,
    If: emit_if,
    Print: emit_print,
    Breakpoint: emit_breakpoint,
    InlineTriton: emit_inline_triton,
    InlineAsm: emit_inline_asm,
    Yield: emit_yield,
}
