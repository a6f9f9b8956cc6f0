"""The plan of a kernel as readable text: loops, what they compute, and the user's lines."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from math import prod

from tilesmith.analysis.partial_tiles import find_partial_axes
from tilesmith.backends.cpu.nests import PlannedGrid, Program
from tilesmith.backends.cpu.packed_operands import PackedTensor
from tilesmith.backends.cpu.printing.expressions import Expr
from tilesmith.backends.cpu.printing.lines import Lines
from tilesmith.backends.cpu.printing.names import Names, find_users
from tilesmith.backends.cpu.printing.scene import Scene
from tilesmith.backends.cpu.printing.scratch_text import print_scratch
from tilesmith.backends.cpu.printing.steps import StepPrinter
from tilesmith.backends.cpu.virtual_tiles import VirtualTiles
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.traversal import definitions
from tilesmith.ir.types import TensorType
from tilesmith.ir.values import Value
from tilesmith.schedule.schedule import Schedule


def print_plan(function: Function, schedule: Schedule, grids: Sequence[PlannedGrid]) -> str:
    """The text of all grids."""
    return _PlanPrinter(function, schedule, grids).print()


class _PlanPrinter:
    def __init__(
        self, function: Function, schedule: Schedule, grids: Sequence[PlannedGrid]
    ) -> None:
        self._function = function
        self._schedule = schedule
        self._grids = {grid.op: grid for grid in grids}
        self._block_sizes = {b.name: schedule.symbols[b.name] for b in function.blocks}
        self._partial = find_partial_axes(function, schedule.symbols)
        self._users = find_users(function)
        self._names = Names(function)
        has_origins = bool(schedule.backend_options.get("output_origin_lines", True))
        self._lines = Lines(has_origins=has_origins)
        self._scalars: dict[Value, Expr] = {
            p.value: Expr(self._names.of(p.value)) for p in function.parameters
        }

        self._sources: dict[Value, tuple[SourceLocation, ...]] = {}

    def print(self) -> str:
        """Header, scalars of the whole kernel, then one grid after the other."""
        self._header()
        everything = VirtualTiles(definitions(self._function.body))
        outside = self._steps(self._scene(everything, Program([])))
        for op in self._function.body.ops:
            if isinstance(op, Grid):
                self._lines.blank()
                self._grid(self._grids[op])
            else:
                outside.scalar(op, self._function.body)
        return self._lines.text()

    def _scene(self, tiles: VirtualTiles, program: Program, packed: Collection[Dot] = ()) -> Scene:
        return Scene(
            tiles=tiles,
            program=program,
            schedule=self._schedule,
            block_sizes=self._block_sizes,
            names=self._names,
            lines=self._lines,
            users=self._users,
            scalars=self._scalars,
            sources=self._sources,
            lengths={},
            packed=packed,
        )

    def _steps(self, scene: Scene) -> StepPrinter:
        return StepPrinter(scene, self._partial)

    def _header(self) -> None:
        target, options = self._schedule.target, self._schedule.cpu
        sizes = [f"{name}={size}" for name, size in self._block_sizes.items()]
        sizes = [f"block sizes: {', '.join(sizes)}"] if sizes else []
        lanes = f"{target.vector_lanes} lanes"
        self._lines.remarks([f"{self._function.name} on {target}, {lanes}", *sizes])
        threads = options.threads or "as many as torch uses"
        parts = [f"threads: {threads}"]
        if options.streaming_stores:
            parts.append("whole vectors are stored past the caches")
        self._lines.remarks(parts)
        self._lines.remarks([self._parameter(p.value) for p in self._function.parameters])

    def _parameter(self, value: Value) -> str:
        name = self._names.of(value)
        if not isinstance(value.type, TensorType):
            return f"{name}: {value.type.dtype}"
        tensor = value.type
        text = f"{name}: {tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
        if tensor.strides == _row_major(tensor):
            return text
        return f"{text}, strides [{', '.join(map(str, tensor.strides))}]"

    # --- grids ------------------------------------------------------------------------------------

    def _grid(self, grid: PlannedGrid) -> None:
        op = grid.op
        self._lines.quote([op.loc])
        self._lines.remarks([self._packed(source) for source in grid.packed_tensors])
        scene = self._scene(grid.tiles, grid.program, grid.packed)
        steps = self._steps(scene)
        with self._names.scope(), ExitStack() as block:
            axes = steps.enter(op)
            header = ", ".join(header for header, _ in axes)
            block.enter_context(self._lines.block(f"parallel for {header}", self._programs(op)))
            print_scratch(scene)
            for _, statement in axes:
                if statement:
                    self._lines.put(statement)
            steps.run(grid.program.steps, op.body)

    def _packed(self, source: PackedTensor) -> str:
        text = f"{self._names.of(source.tensor)} is packed once for all programs"
        size = source.size
        return f"{text}: {size:,} bytes" if size is not None else f"{text} if enough share it"

    def _programs(self, op: Grid) -> str:
        """How many programs there are and how they are shared out."""
        how = "dynamic" if self._schedule.cpu.is_dynamic else "static"
        counts = [self._count(op, axis) for axis in range(len(op.blocks))]
        known = [count for count in counts if count is not None]
        plural = "" if prod(known) == 1 else "s"
        total = f"{prod(known):,} program{plural}, " if len(known) == len(counts) else ""
        options = self._schedule.grids.get(op.slot)
        if options is None or len(op.blocks) < 2:
            return f"{total}{how}"
        fastest = self._names.of(op.body.args[options.order[0]])
        return f"{total}{how}, {fastest} fastest"

    def _count(self, op: Grid, axis: int) -> int | None:
        begin, end = (self._scalars[bounds[axis]].constant for bounds in (op.begins, op.ends))
        block = op.blocks[axis]
        size = self._block_sizes.get(block) if block else 1
        if begin is None or end is None or size is None:
            return None
        return max(0, -(-int(end - begin) // size))


def _row_major(tensor: TensorType) -> tuple[int | str, ...]:
    """The strides of a contiguous tensor of that shape; empty where they are not known."""
    sizes = [size for size in tensor.shape[1:] if isinstance(size, int)]
    if len(sizes) != max(0, tensor.rank - 1):
        return ()
    return tuple(prod(sizes[axis:]) for axis in range(tensor.rank))
