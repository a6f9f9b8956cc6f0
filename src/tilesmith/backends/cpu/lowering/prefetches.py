"""Which loads fetch ahead, and how far each index moves to what they fetch.

A nest that reads a row again has it in a cache, and leaves memory idle: it fetches the row of the
next program. Where a row is read once the hardware fetches ahead by itself, but only to the end of
a page: sums of tensors that no cache holds fetch from the next page. Of tensors that a cache holds,
fetching takes longer than it saves, unless functions are computed meanwhile (tensors of 1 to 24 MB
on a Zen 5: norms take 1.0 to 1.45 times as long with it, a softmax 1.0 to 1.1 times without).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod

from tilesmith.analysis.affine import find_affine
from tilesmith.backends.cpu.loop_ir.statements import Form
from tilesmith.backends.cpu.lowering.scopes import GridScope
from tilesmith.backends.cpu.op_costs import LAST_CACHE_BYTES, hides_loads
from tilesmith.backends.cpu.planning import coordinates
from tilesmith.backends.cpu.planning.steps import Nest, OpStep, Step
from tilesmith.backends.cpu.planning.virtual_tiles import VirtualTiles
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.reduction import Reduce

Ahead = dict[Nest, dict[Load, tuple[int, ...]]]


_PAGE_BYTES = 4096


def find_prefetches(scope: GridScope, grid: Grid) -> Ahead:
    """The second nest that reads a load's rows fetches, or the only one if it sums them up."""
    options, tiles = scope.schedule.grids.get(grid.slot), scope.tiles
    axis = options.order[0] if options is not None else len(grid.blocks) - 1
    own = [step for step in scope.program.steps if isinstance(step, Nest)]
    loads = {
        nest: list(dict.fromkeys(_contiguous_loads(nest, tiles)))
        for nest in _nests(scope.program.steps)
    }
    readers = Counter(op for found in loads.values() for op in found)
    seen = Counter[Load]()
    ahead: Ahead = {}
    for nest, op in ((nest, op) for nest, ops in loads.items() for op in ops):
        seen[op] += 1
        if readers[op] == 1 and _is_sum(nest) and _find_bytes(op) > LAST_CACHE_BYTES:
            distance = _to_next_page(op)
        else:
            is_again = seen[op] == 2 and nest in own
            is_held = 0 < _find_bytes(op) <= LAST_CACHE_BYTES
            pays = is_again and (not is_held or _hides_loads(nest, tiles))
            distance = _to_next_program(scope, op, grid, axis) if pays else ()
        if any(distance):
            ahead.setdefault(nest, {})[op] = distance
    return ahead


def _nests(steps: Iterable[Step]) -> Iterator[Nest]:
    for step in steps:
        if isinstance(step, Nest):
            yield step
        elif isinstance(step, OpStep):
            for body in step.bodies:
                yield from _nests(body)


def _is_sum(nest: Nest) -> bool:
    return any(not root.is_keep and isinstance(root.op, Reduce) for root in nest.roots)


def _find_bytes(op: Load) -> int:
    """How long the tensor is; 0 where that is not known."""
    tensor = op.tensor.tensor
    sizes = [size for size in tensor.shape if isinstance(size, int)]
    return prod(sizes) * tensor.dtype.itemsize if len(sizes) == tensor.rank else 0


def _hides_loads(nest: Nest, tiles: VirtualTiles) -> bool:
    return hides_loads({op for root in nest.roots for _, op in root.closure(tiles).nodes})


def _to_next_page(op: Load) -> tuple[int, ...]:
    """Along the dimension that lies element by element."""
    tensor = op.tensor.tensor
    last = max(place for place, by in enumerate(tensor.strides) if by == 1)
    distance = _PAGE_BYTES // tensor.dtype.itemsize
    return tuple(distance * (place == last) for place in range(tensor.rank))


def _contiguous_loads(nest: Nest, tiles: VirtualTiles) -> Iterator[Load]:
    """Loads that go through memory element by element along the lanes."""
    if nest.layout.form is not Form.ROWS or nest.layout.vector_axis < 0:
        return
    for root in nest.roots:
        for (_, coords), op in root.closure(tiles).nodes:
            if not isinstance(op, Load) or op.bases is not None:
                continue
            places = coordinates.access_places(op, coords)
            if tiles.moved_strides(op, places, nest.layout.vector_axis) == [(1, 1)]:
                yield op


def _to_next_program(scope: GridScope, op: Load, grid: Grid, axis: int) -> tuple[int, ...]:
    begin, block = grid.body.args[axis], grid.blocks[axis]
    size = scope.schedule.symbols[block] if block else 1
    forms = [find_affine(moving, scope.tiles.definitions) for moving in op.indices]
    return tuple(0 if form is None else dict(form.base).get(begin, 0) * size for form in forms)
