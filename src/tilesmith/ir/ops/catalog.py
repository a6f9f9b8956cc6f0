"""Every op of the IR, by name. The interpreter and all backends are checked against this list."""

from __future__ import annotations

from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, GroupBarrier, If, Loop, While, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.foreign import Assert, Breakpoint, InlineAsm, InlineTriton, Print
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, Mask, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.ir.ops.rearrangement import Gather, Join, Select, Sort
from tilesmith.ir.ops.reduction import Reduce, ReduceWith, Scan, ScanWith
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape

FAMILIES: dict[str, tuple[type[Operation], ...]] = {
    "elementwise": (Elementwise, Cast),
    "indexing": (Full, TileIndex, Arange, BlockSize, Mask),
    "memory": (Load, Store, Atomic, ProgramBarrier),
    "matmul": (Dot,),
    "reduction": (Reduce, Scan, ReduceWith, ScanWith),
    "shape": (ExpandDims, Broadcast, Reshape, Permute),
    "rearrangement": (Join, Select, Gather, Sort),
    "control_flow": (Grid, GridBarrier, GroupBarrier, Loop, While, If, Yield),
    "foreign": (Print, Breakpoint, Assert, InlineTriton, InlineAsm),
}
OPS_BY_NAME = {cls.name: cls for family in FAMILIES.values() for cls in family}
