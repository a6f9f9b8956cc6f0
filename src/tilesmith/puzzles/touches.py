"""Which program of a launch touches which elements: recorded while the interpreter runs it.

Drawn as a grid of characters for terminals, and as SVG for notebooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import groupby, zip_longest
from typing import Any

import torch

from tilesmith.compiler.interpreter_tiles import whole_tile_sizes
from tilesmith.exc import InvalidConfig
from tilesmith.interpreter.effects import resolve_access
from tilesmith.interpreter.frame import Frame, prepare_function
from tilesmith.interpreter.run import EVALUATORS, run_prepared
from tilesmith.ir.function import Function
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.executables import CapturedLaunch
from tilesmith.numerics.doctor.host_run import HostRun, launch_arguments
from tilesmith.numerics.reference_setup import runtime_sizes
from tilesmith.schedule.config import Config

NOBODY, SEVERAL = -1, -2
LABELS = "0123456789abcdefghijklmnopqrstuvwxyz"
UNTOUCHED, SHARED, BEYOND = "·", "+", "#"
COLOURS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#ff9da7",
    "#9c755f", "#86bcb6", "#d37295", "#a0cbe8",
)  # fmt: skip
MANY = "#79706e"
CELL, SMALL_CELL, GAP, TOP = 18, 5, 28, 26
MOST_CELLS = 150
"""Cells with a number in them; larger pictures have colours only."""
WIDEST = 40
"""Columns that a picture shows; of a larger tensor the beginning is shown."""


@dataclass
class Plane:
    """One tensor: for each element the number of the program that touches it, or how many do."""

    read: torch.Tensor
    written: torch.Tensor

    def mark(self, plane: torch.Tensor, positions: torch.Tensor, program: int) -> None:
        """Note that a program touches elements, given as positions in row-major order."""
        flat = plane.view(-1)
        seen = flat[positions]
        is_mine = (seen == NOBODY) | (seen == program)
        flat[positions] = torch.where(is_mine, program, SEVERAL)


@dataclass
class Touches:
    """All tensors of a kernel by name, and where the tiles of its programs start."""

    planes: dict[str, Plane] = field(default_factory=dict[str, Plane])
    programs: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])

    def note(self, op: Any, shape: Any, frame: Frame) -> None:
        """One access, before it happens."""
        tensor = frame.values[op.tensor]
        if getattr(op, "bases", None) is not None or not isinstance(tensor, torch.Tensor):
            return
        access = resolve_access(op, shape, frame)
        name = op.tensor.name
        if name not in self.planes:
            empty = torch.full(tuple(tensor.shape), NOBODY, dtype=torch.int64)
            self.planes[name] = Plane(empty, empty.clone())
        if access is None:
            return
        # Counted from one: lanes that are masked off read as zero.
        numbers = torch.arange(1, tensor.numel() + 1).view(tensor.shape)
        found = access.read(numbers).reshape(-1)
        positions = found[found > 0] - 1
        plane = self.planes[name]
        is_read = isinstance(op, Load)
        plane.mark(plane.read if is_read else plane.written, positions, self._program(frame))

    def _program(self, frame: Frame) -> int:
        if frame.program not in self.programs:
            self.programs.append(frame.program)
        return self.programs.index(frame.program)


def _shape_of(op: Load | Store | Atomic) -> Any:
    return op.result.tile.shape if isinstance(op, Load) else op.value.tile.shape


def _recorded(touches: Touches, kind: type[Any]) -> Callable[[Any, Frame], Any]:
    run = EVALUATORS[kind]

    def evaluate(op: Any, frame: Frame) -> Any:
        touches.note(op, _shape_of(op), frame)
        return run(op, frame)

    return evaluate


def small_config(bound: BoundKernel, size: int) -> Config:
    """The default with every block of that size: a few programs, which a picture can show."""
    default = bound.default_config()
    blocks = [size] * len(default.get("block_sizes", []))
    try:
        return bound.config_spec.normalize(default.updated(block_sizes=blocks))
    except InvalidConfig:  # a block that the kernel wants larger
        return default


def block_sizes(function: Function, config: Config) -> dict[str, int]:
    """The size of every block: what the config says, else whole axes."""
    blocks = config.get("block_sizes", [])
    chosen = {
        block.name: blocks[block.slot]
        for block in function.blocks
        if block.slot is not None and block.slot < len(blocks)
    }
    return {**whole_tile_sizes(function), **chosen}


def run_recorded(
    bound: BoundKernel, args: tuple[Any, ...], block_size: int
) -> tuple[list[torch.Tensor], Touches]:
    """What a call gives, with bounds and races checked, and what its programs touch."""
    touches = Touches()
    config = small_config(bound, block_size)

    def launch(captured: CapturedLaunch) -> None:
        function = captured.variant.function
        recorded = {kind: _recorded(touches, kind) for kind in (Load, Store, Atomic)}
        prepared = replace(prepare_function(function), evaluators=recorded)
        arguments: Mapping[str, Any] = launch_arguments(captured)
        sizes = {**runtime_sizes(function, arguments), **block_sizes(function, config)}
        run_prepared(prepared, arguments, sizes, races=True)

    run = HostRun(bound, bound.definition.arguments.complete(args), config, launch)
    return run.results, touches


def panels(touches: Touches) -> list[tuple[str, torch.Tensor]]:
    """One picture for each tensor and use: a title, and the program of each element."""
    found: list[tuple[str, torch.Tensor]] = []
    for name, plane in touches.planes.items():
        for verb, numbers in (("read", plane.read), ("written", plane.written)):
            if (numbers != NOBODY).any():
                found.append((f"{name}, {verb}", _matrix(numbers)))
    return found


def _matrix(numbers: torch.Tensor) -> torch.Tensor:
    """As rows and columns: all axes but the last one below each other."""
    rows = numbers.reshape(-1, numbers.shape[-1]) if numbers.dim() else numbers.reshape(1, 1)
    return rows[:WIDEST, :WIDEST]


def label_of(program: int) -> str:
    """The character that stands for a program."""
    if program == NOBODY:
        return UNTOUCHED
    if program == SEVERAL:
        return SHARED
    return LABELS[program] if program < len(LABELS) else BEYOND


def text_picture(touches: Touches) -> str:
    """Grids side by side, a character for each element: the program that touches it."""
    blocks = [_block(title, matrix) for title, matrix in panels(touches)]
    lines = [""] if not blocks else list(_beside(blocks))
    count = len(touches.programs)
    legend = f"{count} programs: 0 to {label_of(count - 1)}" if count > 1 else "1 program: 0"
    return "\n".join([*lines, f"{legend};  {SHARED} several  {UNTOUCHED} none"])


def _block(title: str, matrix: torch.Tensor) -> list[str]:
    rows = [" ".join(map(label_of, row)) for row in matrix.tolist()]
    width = max(map(len, (title, *rows)))
    return [line.ljust(width) for line in (title, *rows)]


def _beside(blocks: Sequence[list[str]]) -> Iterator[str]:
    for parts in zip_longest(*blocks):
        padded = [part or " " * len(block[0]) for part, block in zip(parts, blocks)]
        yield "   ".join(padded).rstrip()


def svg_picture(touches: Touches) -> str:
    """The same in colours; small pictures say element and program of a cell when pointed at."""
    parts: list[str] = []
    left, bottom = 0, 0
    for title, matrix in panels(touches):
        rows, columns = matrix.shape
        is_small = rows * columns <= MOST_CELLS
        size = CELL if is_small else SMALL_CELL
        parts.append(f'<text x="{left}" y="14" class="t">{escape(title)}</text>')
        drawn = _cells(matrix, left) if is_small else _runs(matrix, left)
        parts.extend(drawn)
        left += max(columns * size, 8 * len(title)) + GAP
        bottom = max(bottom, TOP + rows * size)
    style = (
        "text{font:11px system-ui,sans-serif;fill:currentColor}.t{font-weight:600}"
        "text.c{fill:#fff;text-anchor:middle}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {max(left, 1)} {bottom + 4}" '
        f'width="{max(left, 1)}" height="{bottom + 4}" role="img" '
        f'aria-label="which program touches which element"><style>{style}</style>'
        f"{''.join(parts)}</svg>"
    )


def _cells(matrix: torch.Tensor, left: int) -> Iterator[str]:
    for row, line in enumerate(matrix.tolist()):
        for column, program in enumerate(line):
            x, y = left + column * CELL, TOP + row * CELL
            text = "" if program == NOBODY else label_of(program)
            yield (
                f"<g><title>[{row}, {column}]: {_who(program)}</title>"
                f"{_box(x, y, (CELL, CELL), program)}"
                f'<text class="c" x="{x + CELL // 2 - 1}" y="{y + 12}">{text}</text></g>'
            )


def _runs(matrix: torch.Tensor, left: int) -> Iterator[str]:
    """Neighbours of one program as one box: a large picture stays a small file."""
    top = 0
    for line, group in groupby(matrix.tolist()):
        height = len(list(group))
        begin = 0
        for program, run in groupby(line):
            width = len(list(run))
            x, y = left + begin * SMALL_CELL, TOP + top * SMALL_CELL
            box = _box(x, y, (width * SMALL_CELL, height * SMALL_CELL), program)
            yield f"<g><title>{_who(program)}</title>{box}</g>"
            begin += width
        top += height


def _who(program: int) -> str:
    return {NOBODY: "no program", SEVERAL: "several programs"}.get(program, f"program {program}")


def _box(x: int, y: int, size: tuple[int, int], program: int) -> str:
    colour = "none" if program == NOBODY else COLOURS[program % len(COLOURS)]
    colour = MANY if program == SEVERAL else colour
    return (
        f'<rect x="{x}" y="{y}" width="{size[0] - 1}" height="{size[1] - 1}" rx="2" '
        f'fill="{colour}" stroke="#8888" stroke-width=".5"/>'
    )
