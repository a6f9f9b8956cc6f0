"""From program ids to tiles, and barriers between programs.

Counts of tiles are computed once, before a persistent loop; ids are taken apart with the fastest
axis first. At a barrier each program raises a counter in memory and waits for the others. Between
grids all wait for all, so all must be resident, or those that wait would keep the others from
starting. Inside a grid programs wait for those of their group only. They are numbered in the order
in which they start: where members of a group have neighbouring numbers, those who wait keep no
earlier group from being complete. Counters are zero at each launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from tilesmith.backends.source_writer import Precedence
from tilesmith.backends.triton.emission.axes import Axis, start_name
from tilesmith.backends.triton.emission.emitter import Emitter, Rules
from tilesmith.backends.triton.emission.idle_lanes import longest_first
from tilesmith.backends.triton.emission.spelling import Expr, axis_suffix, call, literal
from tilesmith.backends.triton.ops.accesses import offset
from tilesmith.backends.triton.workarounds.loop_ends import tile_range
from tilesmith.backends.triton.workarounds.loop_limits import limited
from tilesmith.dtypes import I32
from tilesmith.ir.function import Function, Parameter
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, GroupBarrier
from tilesmith.ir.types import TensorType, Value
from tilesmith.schedule.config import is_persistent
from tilesmith.schedule.schedule import GridOptions, Schedule

MAX_LAUNCH_AXES = 3
_CUS_PER_XCD = {"gfx942": 38, "gfx950": 32}


def is_xyz(pid_type: str, grids: Sequence[Grid]) -> bool:
    """Whether every axis gets its own launch axis."""
    if pid_type != "xyz" or len(grids) != 1:
        return False
    return 1 < len(grids[0].blocks) <= MAX_LAUNCH_AXES


def emit_body(emitter: Emitter) -> None:
    """The whole device function: between barriers, scalars first, then the top-level loops."""
    emitter.scope.reserve_slices()
    for phase in split_at_barriers(emitter.function.body.ops):
        grids = [op for op in phase if isinstance(op, Grid)]
        for op in phase:
            if not isinstance(op, Grid):
                emitter.op(op)
        if grids:
            _emit_grids(emitter, grids)


@dataclass
class _Tiles:
    """The tiles of one top-level loop: how many along each axis, and how ids run through them."""

    op: Grid
    order: tuple[int, ...]
    l2_grouping: int
    counts: dict[int, Expr]
    group_size: Expr | None = None
    """The number of tiles in one L2 group."""

    @property
    def total(self) -> Expr:
        """The number of tiles."""
        return prod((self.counts[axis] for axis in self.order), start=literal(1))


def grid_order(op: Grid, options: GridOptions | None) -> tuple[int, ...]:
    """The axes of a loop, the fastest first."""
    rank = len(op.blocks)
    return options.order if options and len(options.order) == rank else tuple(range(rank))


def _emit_grids(emitter: Emitter, grids: Sequence[Grid]) -> None:
    if len(grids) == 1:
        emitter.writer.origin(grids[0].loc)
    grids = longest_first(grids, emitter.uses.defining, emitter.schedule)
    is_flat = emitter.schedule.pid_type == "flat"
    assert is_flat or find_tickets(emitter.function) is None, "one ticket, one tile"
    if is_xyz(emitter.schedule.pid_type, grids):
        _emit_xyz(emitter, grids[0])
        return
    pid = emitter.named("pid", first_number(emitter))
    _emit_xcd_remap(emitter, str(pid))
    # A single flat loop never needs the count of its slowest axis.
    has_program_loop = is_persistent(emitter.schedule.pid_type)
    needs_totals = has_program_loop or len(grids) > 1
    tiles = [_count(emitter, op, needs_totals) for op in grids]
    if has_program_loop:
        _emit_persistent(emitter, tiles, pid)
    else:
        _emit_ranges(emitter, tiles, pid, _ends(emitter, tiles))


def _emit_xcd_remap(emitter: Emitter, pid: str) -> None:
    """Give each chiplet a run of neighbouring ids: the hardware deals them out in turn."""
    schedule, target = emitter.schedule, emitter.schedule.target
    per_chiplet = _CUS_PER_XCD.get(target.arch, 0) if target.kind == "hip" else 0
    num_xcds = round(target.num_sms / per_chiplet) if per_chiplet else 1
    is_wanted = schedule.backend_options.get("xcd_remap") and num_xcds > 1
    # A ticket says nothing about the chiplet, and neighbours that wait for each other stay such.
    is_ticket = find_tickets(emitter.function) is not None
    if not is_wanted or is_ticket or schedule.pid_type == "persistent_interleaved":
        return
    count = emitter.named("num_programs", call("tl.num_programs", 0))
    xcd = emitter.named("xcd", Expr(f"{pid} % {num_xcds}"))
    run = f"{xcd} * ({count} // {num_xcds}) + min({xcd}, {count} % {num_xcds})"
    emitter.assign(pid, Expr(f"{run} + {pid} // {num_xcds}"))


def _count(emitter: Emitter, op: Grid, needs_total: bool) -> _Tiles:
    options = emitter.schedule.grids.get(op.slot)
    order = grid_order(op, options)
    grouping = options.l2_grouping if options and len(order) > 1 else 1
    needed = order if needs_total else order[: max(len(order) - 1, 2 if grouping > 1 else 0)]
    counts = {axis: _axis_count(emitter, op, axis) for axis in needed}
    tiles = _Tiles(op, order, grouping, counts)
    if grouping > 1 and len(order) > 1:
        per_group = literal(grouping) * counts[order[1]]
        tiles.group_size = emitter.named("num_pid_in_group", per_group)
    return tiles


def _axis_count(emitter: Emitter, op: Grid, axis: int) -> Expr:
    block = op.blocks[axis]
    extent = emitter.expr(op.ends[axis]) - emitter.expr(op.begins[axis])
    if not block or emitter.schedule.symbols[block] == 1:
        return extent
    count = call("tl.cdiv", extent, emitter.spelling.block_name(block))
    return emitter.named(f"num_pid{axis_suffix(block)}", count)


def _ends(emitter: Emitter, tiles: Sequence[_Tiles]) -> list[Expr]:
    """The first id past each loop's range; the last loop takes what is left."""
    ends: list[Expr] = []
    for index, item in enumerate(tiles[:-1]):
        end = ends[-1] + item.total if ends else item.total
        ends.append(emitter.named(f"end_{index}", end))
    return ends


def _emit_ranges(
    emitter: Emitter, tiles: Sequence[_Tiles], pid: Expr, ends: Sequence[Expr]
) -> None:
    if len(tiles) == 1:
        _emit_tile(emitter, tiles[0], pid)
        return
    for index, item in enumerate(tiles):
        keyword = "elif" if index else "if"
        is_last = index == len(tiles) - 1
        header = "else" if is_last else f"{keyword} {pid} < {ends[index]}"
        with emitter.writer.block(header):
            emitter.writer.origin(item.op.loc)
            own = pid
            if index:
                own = emitter.named(f"pid_{index}", pid - ends[index - 1])
            _emit_tile(emitter, item, own)


def _emit_persistent(emitter: Emitter, tiles: Sequence[_Tiles], pid: Expr) -> None:
    ends = _ends(emitter, tiles)
    total = tiles[-1].total if not ends else ends[-1] + tiles[-1].total
    programs = num_programs(emitter)
    if emitter.schedule.pid_type == "persistent_interleaved":
        bounds = [pid, total, programs]
    else:
        bounds = _emit_chunk(emitter, pid, total, programs)
    variable = Expr(emitter.spelling.names.fresh("tile_id"))
    options = limited(emitter.schedule.persistent_loop, [item.op.body for item in tiles])
    header = tile_range(bounds, options, is_forward=False)
    with emitter.writer.block(f"for {variable} in {header.text}", header.arguments):
        _emit_ranges(emitter, tiles, emitter.renumber(variable, total, programs), ends)


def num_programs(emitter: Emitter) -> Expr:
    """The size of a persistent launch, as the device sees it."""
    emitter.spelling.needs.constexprs["NUM_SMS"] = num_sms(emitter.schedule)
    return Expr("NUM_SMS", is_untyped=True) * emitter.schedule.num_sm_multiplier


CLUSTERED = "clustered_roles"
"""The value of ``structure`` where two programs share a tile."""


def num_sms(schedule: Schedule) -> str:
    """The multiprocessors of a persistent launch, as a launch expression."""
    reserved = schedule.reserved_sms
    free = f"max(num_sms - {reserved}, 1)" if reserved else "num_sms"
    return f"max({free} // 2, 1)" if schedule.form == CLUSTERED else free


def _emit_chunk(emitter: Emitter, pid: Expr, total: Expr, programs: Expr) -> list[Expr]:
    """Each program takes a run of neighbouring tiles."""
    num_tiles = emitter.named("num_tiles", total)
    size = emitter.named("chunk", call("tl.cdiv", num_tiles, programs))
    first = emitter.named("first", pid * size)
    return [first, call("min", f"{first} + {size}", num_tiles)]


def _emit_xyz(emitter: Emitter, op: Grid) -> None:
    tiles = _count(emitter, op, needs_total=False)
    pids = [call("tl.program_id", i) for i in range(len(tiles.order))]
    if tiles.l2_grouping == 1:
        _bind(emitter, op, dict(zip(tiles.order, pids)))
        return
    flat, stride = literal(0), literal(1)
    for position, axis in enumerate(tiles.order):
        flat += pids[position] * stride
        if position < len(tiles.order) - 1:
            stride *= tiles.counts[axis]
    _emit_tile(emitter, tiles, emitter.named("pid", flat))


def _emit_tile(emitter: Emitter, tiles: _Tiles, pid: Expr) -> None:
    is_grouped = tiles.l2_grouping > 1
    ids = _split_grouped(emitter, tiles, pid) if is_grouped else _split(tiles, pid)
    _bind(emitter, tiles.op, ids)


def _split(tiles: _Tiles, pid: Expr) -> dict[int, Expr]:
    """The id along each axis: the remainder by the fastest count, then by the next."""
    ids: dict[int, Expr] = {}
    rest, divisor = pid, literal(1)
    for axis in tiles.order[:-1]:
        count = tiles.counts[axis]
        ids[axis] = rest % count
        divisor *= count
        rest = pid // divisor
    ids[tiles.order[-1]] = rest
    return ids


def _split_grouped(emitter: Emitter, tiles: _Tiles, pid: Expr) -> dict[int, Expr]:
    """Groups of rows of the fastest axis across all of the second, so that both stay in L2."""
    first_axis, second_axis, *outer = tiles.order
    rows, columns = tiles.counts[first_axis], tiles.counts[second_axis]
    ids: dict[int, Expr] = {}
    inner = pid
    if outer:
        plane = rows * columns
        inner_tiles = _Tiles(tiles.op, tuple(outer), 1, tiles.counts)
        ids = _split(inner_tiles, Expr(str(pid // plane), Precedence.PRODUCT))
        inner = emitter.named("pid_in_plane", pid % plane)
    grouping, group_size = literal(tiles.l2_grouping), tiles.group_size
    assert group_size is not None
    start = emitter.named("first_row", inner // group_size * grouping)
    in_group = emitter.named("group_rows", call("min", rows - start, grouping))
    position = emitter.named("pid_in_group", inner % group_size)
    ids[first_axis] = start + position % in_group
    ids[second_axis] = position // in_group
    return ids


def _bind(emitter: Emitter, op: Grid, ids: dict[int, Expr]) -> None:
    """Name the first index of every axis's tile and emit the body."""
    axes: dict[str, Axis] = {}
    for axis, block in enumerate(op.blocks):
        start = _emit_start(emitter, op, axis, ids[axis])
        emitter.alias(op.body.args[axis], start)
        if block:
            axes[block] = emitter.axis(op, axis, start)
    with emitter.scope.binding(axes):
        emitter.region(op.body)


def _emit_start(emitter: Emitter, op: Grid, axis: int, pid: Expr) -> Expr:
    block, arg = op.blocks[axis], op.body.args[axis]
    is_tile = bool(block) and emitter.schedule.symbols[block] > 1
    if is_tile and pid.precedence is not Precedence.ATOM:
        pid = emitter.named(f"pid{axis_suffix(block)}", pid)
    if block in emitter.long_last:
        # The longest programs first: short ones even out what is left.
        pid = emitter.named(
            f"pid{axis_suffix(block)}", _axis_count(emitter, op, axis) - literal(1) - pid
        )
    if arg.tile.dtype.bits == 64:
        pid = pid.method("to", "tl.int64")
    step = Expr(emitter.spelling.block_name(block)) if is_tile else literal(1)
    start = emitter.expr(op.begins[axis]) + pid * step
    return emitter.named(start_name(block, arg), start)


COOPERATIVE = "launch_cooperative_grid"
"""The launch option that makes the driver refuse a grid that cannot be resident as a whole."""


def split_at_barriers(ops: Sequence[Operation]) -> list[list[Operation]]:
    """The ops between barriers; each list but the first begins with its barrier."""
    phases: list[list[Operation]] = [[]]
    for op in ops:
        if isinstance(op, GridBarrier):
            phases.append([])
        phases[-1].append(op)
    return phases


def has_barriers(function: Function) -> bool:
    """Whether all programs wait for each other."""
    return any(isinstance(op, GridBarrier) for op in function.body.ops)


def add_counter(function: Function) -> Function:
    """The function with a last parameter that counts at its barriers; unchanged if it has none."""
    if not has_barriers(function):
        return function
    name = "barrier_counter"
    while any(parameter.value.name == name for parameter in function.parameters):
        name += "_"
    counter = Value(TensorType(I32, (1,), (1,), alias=-1), name)
    first = next(p for p in function.parameters if isinstance(p.value.type, TensorType))
    source = f"torch.zeros(1, dtype=torch.int32, device={first.source}.device)"
    return replace(function, parameters=(*function.parameters, Parameter(counter, source)))


def find_tickets(function: Function) -> Value | None:
    """The tensor from whose last element programs draw numbers, if they wait inside a grid.

    It is what they are counted in: a launch takes time to clear each tensor.
    """
    grids = (op for op in function.body.ops if isinstance(op, Grid))
    inside = (op for grid in grids for op in grid.body.ops)
    return next((op.counts for op in inside if isinstance(op, GroupBarrier)), None)


def _emit_grid_barrier(emitter: Emitter, op: GridBarrier) -> None:
    """Wait until every program has come to this barrier."""
    barriers = [op for op in emitter.function.body.ops if isinstance(op, GridBarrier)]
    counter = emitter.function.parameters[-1].value
    # The counter is never set back: at barrier n each program has counted n times.
    arrivals = call("tl.num_programs", 0) * literal(barriers.index(op) + 1)
    _emit_wait(emitter, emitter.expr(counter), arrivals)


def _emit_group_barrier(emitter: Emitter, op: GroupBarrier) -> None:
    """Wait until as many programs as the op says have come to its place."""
    counter, place = emitter.expr(op.counts), offset(emitter, op.counts, (op.place,))
    if place.constant != 0:
        counter = counter.infix("+", place)
    _emit_wait(emitter, counter, emitter.expr(op.arrivals))


def _emit_wait(emitter: Emitter, counter: Expr, arrivals: Expr) -> None:
    helper = emitter.spelling.helper("_wait_for_arrivals")
    emitter.writer.statement(helper, [str(counter), str(arrivals)])


def first_number(emitter: Emitter) -> Expr:
    """The number of a program along the first launch axis.

    Where programs wait for others of their grid, it is a ticket: the hardware may start programs
    in any order, and one that has drawn a number has started after all with a lower one.
    """
    tickets = find_tickets(emitter.function)
    if tickets is None:
        return call("tl.program_id", 0)
    (size,) = tickets.tensor.shape
    assert isinstance(size, int)
    last = emitter.expr(tickets).infix("+", literal(size - 1))
    return call("tl.atomic_add", last, 1, 'sem="relaxed"', 'scope="gpu"')


RULES: Rules = {GridBarrier: _emit_grid_barrier, GroupBarrier: _emit_group_barrier}
