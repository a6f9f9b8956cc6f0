"""What names mean at a place in the backward kernel: values, tiles, block sizes, sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import tilesmith.exc as errors
from tilesmith.gradients.source.texts import Identifiers, Text
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.indexing import Full, TileIndex
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.shape import ExpandDims
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import Dim, Extent, Shape, TensorType, Value

TORCH_DTYPES = {
    "bool": "torch.bool", "u8": "torch.uint8", "u16": "torch.uint16", "u32": "torch.uint32",
    "u64": "torch.uint64", "i8": "torch.int8", "i16": "torch.int16", "i32": "torch.int32",
    "i64": "torch.int64", "f8e4m3": "torch.float8_e4m3fn", "f8e5m2": "torch.float8_e5m2",
    "f16": "torch.float16", "bf16": "torch.bfloat16", "f32": "torch.float32",
    "f64": "torch.float64",
}  # fmt: skip


@dataclass(frozen=True)
class TileName:
    """The variable of a loop over tiles."""

    name: str
    block: str
    """Empty: it stands for one index."""
    end: Value
    is_index: bool = False
    """Whether the variable itself is a number, as in ``hl.grid``."""

    @property
    def begin(self) -> str:
        """Its first index."""
        return self.name if self.is_index else f"{self.name}.begin"


@dataclass
class Scope:
    """Grows while a kernel is written; ``tiles`` are those of the loops that are open."""

    function: Function
    definitions: Mapping[Value, Operation]
    identifiers: Identifiers
    tiles: dict[Value, TileName] = field(default_factory=dict[Value, TileName])
    """By the argument of a loop."""
    blocks: dict[str, str] = field(default_factory=dict[str, str])
    """Host variables of blocks that several loops share."""
    ends: dict[Value, str] = field(default_factory=dict[Value, str])
    """By the argument of a loop that ends with a dimension of a tensor: that size."""
    texts: dict[Value, Text] = field(default_factory=dict[Value, Text])
    """What stands for values that have a text: names, and numbers of the host."""

    elements: set[Value] = field(default_factory=set[Value])
    """Arguments of functions that combine elements: scalars, but no numbers of the host."""

    def tensor(self, value: Value) -> str:
        """The name of a tensor."""
        return self.texts[value].code

    def tile_of(self, block: str) -> TileName | None:
        """The innermost open loop over the tiles of a block."""
        found = [tile for tile in self.tiles.values() if tile.block == block]
        return found[-1] if found else None

    def dims(self, shape: Shape) -> list[str]:
        """A shape in words that ``hl.zeros`` and the like take."""
        return [self.dim(dim) for dim in shape]

    def dim(self, dim: Dim) -> str:
        """One dimension."""
        if len(dim.factors) == 1 and isinstance(dim.factors[0], str):
            tile = self.tile_of(dim.factors[0])
            if tile is not None:
                return tile.name
        return " * ".join(map(self._factor, dim.factors)) or "1"

    def _factor(self, factor: int | str) -> str:
        if isinstance(factor, int):
            return str(factor)
        tile = self.tile_of(factor)
        if tile is not None:
            return f"{tile.name}.block_size"
        if factor in self.blocks:
            return self.blocks[factor]
        return self.extent(factor)

    def name_ends(self) -> None:
        """Find the loops that end with a dimension of a tensor that they index."""
        ops = list(walk(self.function.body))
        loops = [op for op in ops if isinstance(op, (Grid, Loop))]
        ranges = {arg: end for op in loops for arg, end in zip(op.body.args, op.ends)}
        # The tiles of a group begin with the group.
        groups = {arg: first for op in loops for arg, first in zip(op.body.args, op.begins)}
        accesses = [op for op in ops if isinstance(op, (Load, Store)) and op.tensor in self.texts]
        places = [(op, *place) for op in accesses for place in enumerate(op.indices)]
        for op, axis, index in places:
            arg = self._tile_of_index(index)
            arg = groups[arg] if groups.get(arg) in ranges else arg
            end = self.definitions.get(ranges[arg]) if arg in ranges else None
            if isinstance(end, Full) and end.value == op.tensor.tensor.shape[axis]:
                self.ends.setdefault(arg, f"{self.tensor(op.tensor)}.size({axis})")

    def _tile_of_index(self, index: Value) -> Value:
        op = self.definitions.get(index)
        if isinstance(op, ExpandDims):
            op = self.definitions.get(op.x)
        return op.begin if isinstance(op, TileIndex) else index

    def extent(self, extent: Extent) -> str:
        """A size of a tensor."""
        if isinstance(extent, int):
            return str(extent)
        value = self.function.find_parameter(extent)
        if value is None or value not in self.texts:
            raise errors.InternalError(problem=f"size {extent!r} has no text")
        return self.texts[value].code


def tile_names(op: Grid | Loop, identifiers: Identifiers) -> list[TileName]:
    """Variables for the axes of a loop, named as the user did."""
    is_index = not any(op.blocks)
    found: list[TileName] = []
    for arg, block, end in zip(op.body.args, op.blocks, op.ends):
        wish = arg.name.removesuffix("_begin") or ("index" if is_index else "tile")
        found.append(TileName(identifiers.make(wish), block, end, is_index))
    return found


def tensor_dtype(tensor: Value) -> str:
    """The torch name of a tensor's element type."""
    assert isinstance(tensor.type, TensorType)
    return TORCH_DTYPES[tensor.type.dtype.name]
