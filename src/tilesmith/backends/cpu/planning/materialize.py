"""Tiles worth materialising: expensive and used by several nests, or changed before their use.

A first plan without them shows where each tile would be computed. A kept tile goes to the place
of a later store of the same type where that is possible, so that it needs no memory of its own.
Loads whose memory changes before their value is used are done where they stand; all others are
virtual: each nest reads the elements it needs when it needs them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tilesmith.analysis.effects import alias_group, is_elsewhere
from tilesmith.analysis.memory_conflicts import Access, find_accesses, may_conflict
from tilesmith.backends.cpu.planning.coordinates import access_places, own_place, space_of
from tilesmith.backends.cpu.planning.plan import final_users, plan_program
from tilesmith.backends.cpu.planning.steps import Nest, OpStep, Program, Step
from tilesmith.backends.cpu.planning.virtual_tiles import (
    VirtualTiles,
    find_matrix,
    find_stored,
    is_injective,
    is_update,
)
from tilesmith.backends.cpu.positions.memory import may_leave
from tilesmith.ir.axis_roles import Gathered, Reshaped
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Loop, While
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.traversal import definitions, values_used_by, walk
from tilesmith.ir.types import Value
from tilesmith.schedule.schedule import Schedule

_MAX_ROUNDS = 4
_MOST_PLACES, _MANY_FUNCTIONS = 4, 64
"""Where many functions are behind one element, none is computed at more places than these."""
_MANY_OPS = 8
"""So many take longer than writing the result to the cache and reading it again."""


def plan_grid(function: Function, body: Region, schedule: Schedule) -> tuple[Program, VirtualTiles]:
    """The plan of a grid's body, with tiles kept in memory where that saves work."""
    defined = definitions(function.body)
    kept = _dot_operands(body, VirtualTiles(defined))
    kept |= find_unsafe_loads(body, VirtualTiles(defined, kept))
    # Views of those are no longer read where the load would.
    kept |= _dot_operands(body, VirtualTiles(defined, kept))
    kept |= _crowded(body, VirtualTiles(defined, kept))
    spilled: dict[Value, Store] = {}
    for _ in range(_MAX_ROUNDS):
        tiles = VirtualTiles(defined, kept)
        program = plan_program(body, tiles, schedule, spilled)
        more = _find_worth_keeping(body, program, tiles) - kept
        if not more:
            break
        kept |= more
        if schedule.cpu.streaming_stores:
            # A result that goes past the caches must not be in them before.
            continue
        spilled.update(_find_spills(body, more, VirtualTiles(defined, kept), spilled))
    tiles = VirtualTiles(defined, kept)
    return plan_program(body, tiles, schedule, spilled), tiles


def _dot_operands(region: Region, tiles: VirtualTiles) -> set[Value]:
    return {
        value
        for dot in walk(region)
        if isinstance(dot, Dot)
        for value in (dot.lhs, dot.rhs)
        if find_stored(value, tiles) is None and find_matrix(value, tiles) is None
    }


def _crowded(region: Region, tiles: VirtualTiles) -> set[Value]:
    """Tiles whose lanes move next and of which an element takes much, once those before are kept.

    An element of a butterfly needs two of the stage before: what is behind it doubles each time.
    """
    found = set[Value]()
    moves = (op for op in walk(region) if isinstance(op.form, (Reshaped, Gathered)))
    for value in (next(iter(op.operand_values())) for op in moves):
        nodes = () if tiles.is_stored(value) else tiles.closure(own_place(value)).nodes
        places = Counter(op for _, op in nodes if isinstance(op, Elementwise))
        if places.total() > _MANY_FUNCTIONS and max(places.values()) > _MOST_PLACES:
            found.add(value)
            tiles = VirtualTiles(tiles.definitions, {*tiles.kept, value})
    return found


def _nests(steps: list[Step], depth: int = 0) -> Iterator[tuple[Nest, int]]:
    for step in steps:
        if isinstance(step, Nest):
            yield step, depth
        elif isinstance(step, OpStep):
            inside = depth + isinstance(step.op, (Loop, While))
            for body in step.bodies:
                yield from _nests(body, inside)


class _Evaluations:
    """In which nests each virtual tile is computed, and in which other spaces than its own."""

    def __init__(self, program: Program, tiles: VirtualTiles, depths: dict[Operation, int]) -> None:
        self.nests: dict[Value, set[int]] = {}
        self.users: dict[Value, set[Value]] = {}
        self.is_repeated: set[Value] = set()
        self.roots: set[Value] = set()
        self._definitions = tiles.definitions
        nests = enumerate(_nests(program.steps))
        for number, nest, depth, root in ((i, n, d, r) for i, (n, d) in nests for r in n.roots):
            computed = {value: op for (value, _), op in root.closure(tiles).nodes}
            self.roots.update(value for value, _ in root.places())
            for value, op in computed.items():
                if value not in self.nests:
                    self.nests[value] = set()
                    self._note_operands(value, op)
            made = {v: op for v, op in computed.items() if not root.is_own_keep or v != root.target}
            for value, op in made.items():
                self.nests[value].add(number)
                if space_of(value.tile.shape) != nest.layout.space or depth > depths[op]:
                    self.is_repeated.add(value)

    def _note_operands(self, value: Value, op: Operation) -> None:
        for operand in op.operand_values():
            self.users.setdefault(operand, set()).add(value)

    def users_behind_views(self, value: Value) -> set[Value]:
        """Tiles computed from a tile, directly or from a view of it; empty when a root uses it."""
        found: set[Value] = set()
        for user in self.users.get(value, ()):
            is_view = Trait.VIEW in self._definitions[user].traits
            behind = self.users_behind_views(user) if is_view else {user}
            if not behind:
                return set()
            found |= behind
        return set() if value in self.roots else found


def _find_worth_keeping(region: Region, program: Program, tiles: VirtualTiles) -> set[Value]:
    depths = {op: len(loops) for op, loops in _with_loops(region, ())}
    made = _Evaluations(program, tiles, depths)
    worthwhile = {
        value
        for value, nests in made.nests.items()
        if (len(nests) > 1 or value in made.is_repeated)
        and _is_worth_keeping(value, tiles, is_repeated=value in made.is_repeated)
    }

    def is_covered(value: Value) -> bool:
        users = made.users_behind_views(value)
        nests = made.nests
        return bool(users) and all(u in worthwhile and nests[u] >= nests[value] for u in users)

    return {value for value in worthwhile if not is_covered(value)}


def _is_worth_keeping(value: Value, tiles: VirtualTiles, *, is_repeated: bool) -> bool:
    op = tiles.definitions[value]
    if not space_of(value.tile.shape) or Trait.VIEW in op.traits:
        return False
    num_computed = num_floats = 0
    for node in tiles.ops_behind(own_place(value)):
        if tiles.is_expensive(node):
            return not isinstance(op, Load) or tiles.is_gather(op)
        num_computed += isinstance(node, Elementwise)
        num_floats += isinstance(node, Elementwise) and node.result.tile.dtype.is_float
        # Of unrolled code thousands may follow; only indices of loads are looked at to the end.
        if num_computed >= _MANY_OPS and not isinstance(op, Load):
            return True
    return (is_repeated and num_floats > 1) or num_computed >= _MANY_OPS


def _find_spills(
    region: Region, values: set[Value], tiles: VirtualTiles, known: dict[Value, Store]
) -> dict[Value, Store]:
    """Stores whose place can hold a kept tile until they happen."""
    stores = [op for op in _lone_stores(region, tiles) if op not in known.values()]
    found: dict[Value, Store] = {}
    for value, made_by in tiles.definitions.items():
        if value not in values or made_by not in region.ops:
            continue
        same = [op for op in stores if op.value.type == value.type]
        fitting = [op for op in same if _is_known_before(op, made_by, region, tiles)]
        # The store of the tile itself before one that will overwrite it.
        own = [op for op in fitting if op.value is value]
        others = [op for op in fitting if op.value not in values]
        others = [op for op in others if _is_last_reader(op, value, region, tiles)]
        for op in (*own, *others)[:1]:
            found[value] = op
            stores.remove(op)
    return found


def _is_last_reader(op: Store, value: Value, region: Region, tiles: VirtualTiles) -> bool:
    """Whether all that reads the tile comes before the store, which reads at its own place only."""
    here = own_place(op.value)
    if any(place[0] is value and place[1] != here[1] for place in tiles.closure(here).leaves):
        return False
    reached, readers = {value}, list[Operation]()
    for user in region.ops:
        if reached.isdisjoint(values_used_by([user])):
            continue
        if user.results and not any(map(tiles.is_stored, user.results)):
            reached.update(user.results)
        elif user is not op:
            readers.append(user)
    # The ops whose results the store needs, directly or not.
    needed, before = set(values_used_by([op])), set[Operation]()
    for earlier in reversed(region.ops):
        if not needed.isdisjoint(earlier.results):
            before.add(earlier)
            needed.update(values_used_by([earlier]))
    return before.issuperset(readers)


def _lone_stores(region: Region, tiles: VirtualTiles) -> list[Store]:
    """Plain stores that are the only access of their tensor and hit no element twice."""
    accesses = [op for op in walk(region) if isinstance(op, (Load, Store, Atomic))]
    groups = [alias_group(op.tensor) for op in accesses]
    if any(map(is_elsewhere, accesses)):
        return []
    return [
        op
        for op in region.ops
        if isinstance(op, Store)
        and op.mask is None
        and groups.count(alias_group(op.tensor)) == 1
        and is_injective(op, tiles)
        and not may_leave(op, tiles.definitions)
    ]


def _is_known_before(op: Store, made_by: Operation, region: Region, tiles: VirtualTiles) -> bool:
    """Whether the store's indices need nothing that is computed after the kept tile."""
    leaves = tiles.join(access_places(op, own_place(op.value)[1])).leaves
    later = region.ops[region.ops.index(made_by) :]
    return not any(tiles.definitions.get(value) in later for value, _ in leaves)


def find_unsafe_loads(region: Region, tiles: VirtualTiles) -> frozenset[Value]:
    """The tiles loaded in a grid's body that some write may change before a use."""
    loops = dict(_with_loops(region, ()))
    order = {op: number for number, op in enumerate(loops)}
    accesses = [access for op in loops for access in find_accesses(op, tiles.definitions)]
    writes = [access for access in accesses if access.writes]

    def comes_between(load: Access, write: Access, user: Operation) -> bool:
        # Of a loop around both each turn uses what the turn before has written.
        shared = set(loops[write.op]) & set(loops[user])
        if shared - set(loops[load.op]):
            return True
        if write.op is user:
            return not is_update(load, write, tiles)
        return order[load.op] < order[write.op] < order[user]

    def is_unsafe(load: Access) -> bool:
        meeting = [write for write in writes if may_conflict(load, write)]
        users = final_users(load.op.result, region, tiles) if meeting else ()
        return any(comes_between(load, write, user) for write in meeting for user in users)

    loads = [access for access in accesses if isinstance(access.op, Load)]
    loads = [load for load in loads if load.op.result.tile.rank]
    return frozenset(load.op.result for load in loads if is_unsafe(load))


def _with_loops(
    region: Region, loops: tuple[Operation, ...]
) -> Iterator[tuple[Operation, tuple[Operation, ...]]]:
    """All ops in program order, each with the loops around it."""
    for op in region.ops:
        yield op, loops
        inside = (*loops, op) if isinstance(op, (Loop, While)) else loops
        for inner in op.regions():
            yield from _with_loops(inner, inside)
