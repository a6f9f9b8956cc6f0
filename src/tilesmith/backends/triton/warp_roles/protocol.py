"""What warps with roles tell each other: rings of buffers, each with barriers full and empty.

A ring has a fixed number of slots. Event ``i`` of a barrier ring of length ``L`` is passed when
slot ``i % L`` has completed its phase ``i // L``; events before the first count as passed. The
producer fills tile ``i`` after all readers are done with tile ``i - L``; readers wait for tile
``i`` to be full. All waits and arrivals of emitted code come from here, and
``test_warp_role_protocol.py`` runs the same two programs in every order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.backends.triton.warp_roles.order import TurnOrder
from tilesmith.backends.triton.warp_roles.plan import RolePlan
from tilesmith.ir.ops.memory import Load

EARLY, LATE, KEPT = "early", "late", "kept"
THREE_GROUPS = 3
LEAST_ROWS = 64
"""Of a group: what its matrix instruction computes at once."""
MOST_COLUMNS = 256
"""Of a matrix instruction."""
REGISTERS = {1: (240, [24]), 2: (168, [240, 24]), 3: (128, [160, 160, 24])}
"""By number of groups: registers of a thread at the launch, then those of all groups but the first
and of the warp that loads. The first group has what is left: as many as the others."""
SHARED_BYTES = 227 << 10
"""Of one program on Hopper."""
BARRIER_BYTES = 1 << 10


def can_share(rows: int, groups: int) -> bool:
    """Whether each group gets the rows of one or two matrix instructions."""
    return rows in (groups * LEAST_ROWS, groups * 2 * LEAST_ROWS)


def is_compiled_rightly(groups: int, stages: int) -> bool:
    """Three groups with a power of two of stages read wrong tiles on an H200.

    The third group alone does, and only as ptxas 12.8 optimises it: unoptimised, or by ptxas 13.0,
    the same PTX is right.
    """
    return groups < THREE_GROUPS or bool(stages & (stages - 1))


@dataclass(frozen=True)
class Ring:
    """Tiles that are copied and handed back together."""

    kind: str
    """Which products read it last: early or late ones of a turn; ``kept``: those of all turns."""
    loads: tuple[Load, ...]
    length: str
    """How many tiles of each load there is room for: a name or a number of the module."""

    @property
    def full(self) -> str:
        """The barriers that tell readers that a tile has arrived."""
        return f"{self.kind}_full"

    @property
    def empty(self) -> str:
        """The barriers that tell the producer that all readers are done."""
        return f"{self.kind}_empty"

    def wait_full(self, event: str) -> str:
        """Readers: until the tiles of an event are there."""
        return f"_wait({self.full}, {event}, {self.length})"

    def wait_empty(self, event: str) -> str:
        """Producer: until the slot of an event is free."""
        return f"_wait({self.empty}, {event} - {self.length}, {self.length})"

    def release(self, event: str) -> str:
        """Readers: done with the tiles of an event."""
        return f"mbarrier.arrive({self.empty}.index({self.slot(event)}), count=1)"

    def slot(self, event: str) -> str:
        """Where the tiles of an event lie."""
        return "0" if self.length == "1" else f"({event}) % {self.length}"


def find_rings(plan: RolePlan, vectors: Sequence[Load], kept_length: int) -> dict[str, Ring]:
    """The rings of a plan, by kind; those without loads are left out.

    Vectors are read as soon as early products are done.
    """
    by_kind = {
        EARLY: (*(load for load in plan.ring if plan.turns_read(load) == EARLY), *vectors),
        KEPT: plan.kept,
        LATE: tuple(load for load in plan.ring if plan.turns_read(load) == LATE),
    }
    return {
        kind: Ring(kind, loads, str(kept_length) if kind == KEPT else "STAGES")
        for kind, loads in by_kind.items()
        if loads
    }


def find_staggered_rings(
    plan: RolePlan, order: TurnOrder, vectors: Sequence[Load], lengths: tuple[int, str]
) -> dict[str, Ring]:
    """Those of a turn that is cut in two: tiles read a turn ahead, kept ones, all others.

    ``lengths`` are those of kept tiles and of the others.
    """
    early = tuple(load for load in plan.ring if order.is_ahead(load))
    late = (*(load for load in plan.ring if not order.is_ahead(load)), *vectors)
    kept_length, late_length = lengths
    rings = (
        Ring(EARLY, early, "STAGES"),
        Ring(KEPT, plan.kept, str(kept_length)),
        Ring(LATE, late, late_length),
    )
    return {ring.kind: ring for ring in rings if ring.loads}


BARRIER_FUNCTIONS = '''
@gluon.jit
def _wait(ring, event, LENGTH: gl.constexpr):
    """Until a ring of barriers has passed an event; those before the first are passed."""
    turn = event + LENGTH
    mbarrier.wait(ring.index(turn % LENGTH), ((turn // LENGTH) & 1) ^ 1)


@gluon.jit
def _barriers(LENGTH: gl.constexpr, ARRIVALS: gl.constexpr):
    """Barriers that each end a phase after so many arrivals."""
    ring = gl.allocate_shared_memory(gl.int64, [LENGTH, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(LENGTH):
        mbarrier.init(ring.index(i), count=ARRIVALS)
    return ring
'''
