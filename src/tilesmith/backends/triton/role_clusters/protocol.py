"""What two programs of a pair tell each other.

Both have half of a tile's rows, so both need all of the right operand: the first program has it
copied into the shared memory of both at once. Each has barriers of its own that say what has
arrived. A slot may be filled again when the groups of *both* programs have released it: each group
tells its own program, and groups of the second tell the first one too, whose loading warp waits for
both. Nobody leaves before both are done, since one's memory is used by the other.

Gluon 3.7 has copies to several programs, but arrivals at one's own barriers only. So barriers that
the second program arrives at are declared and used in PTX, in shared memory of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from tilesmith.backends.triton.warp_roles.protocol import BARRIER_FUNCTIONS, Ring

PEER_BYTES = 1 << 10
"""Of the barriers in PTX: tiles behind them must begin at multiples of so many bytes."""
PROGRAMS = 2
"""Of a cluster."""
LEAST_TRITON = (3, 7)
"""Before, no copy of Gluon's went to several programs."""
MEET = "_meet()"


@dataclass(frozen=True)
class ClusterRing(Ring):
    """Tiles whose slots are free when both programs are done with them."""

    @property
    def released(self) -> str:
        """Where the first program learns that the second is done with a slot."""
        return f"{self.kind}_released"

    @override
    def wait_empty(self, event: str) -> str:
        rings = f"{self.empty}, {self.released}"
        return f"_wait_for_both({rings}, {event} - {self.length}, {self.length})"

    @override
    def release(self, event: str) -> str:
        return f"_release({self.empty}, {self.released}, {self.slot(event)})"


CLUSTER_FUNCTIONS = (
    "from triton.experimental.gluon.language.nvidia.hopper import cluster as _cluster\n\n"
    + BARRIER_FUNCTIONS.replace("[LENGTH, 1]", "[LENGTH, 2]").replace(
        "MBarrierLayout()", "MBarrierLayout([[1]])"
    )
    + '''

_DECLARE = gl.constexpr("""
.shared .align 1024 .b64 peer_released[128];
mov.u32 $0, peer_released;
""")
_INIT = gl.constexpr("""{
.reg .pred first; .reg .b32 thread;
mov.u32 thread, %tid.x; setp.eq.u32 first, thread, 0;
@first mbarrier.init.shared::cta.b64 [$1], $2;
@first fence.mbarrier_init.release.cluster;
mov.u32 $0, 0;
}""")
_TELL = gl.constexpr("""{
.reg .pred second, chosen; .reg .b32 thread, rank, there;
mov.u32 thread, %tid.x; and.b32 thread, thread, 127; mov.u32 rank, %cluster_ctarank;
setp.ne.u32 second, rank, 0; setp.eq.and.u32 chosen, thread, 0, second;
mapa.shared::cluster.u32 there, $1, 0;
@chosen mbarrier.arrive.shared::cluster.b64 _, [there];
mov.u32 $0, 0;
}""")
_LISTEN = gl.constexpr("""{
.reg .pred passed; .reg .b32 rank;
mov.u32 rank, %cluster_ctarank; setp.ne.u32 passed, rank, 0; @passed bra done;
again: mbarrier.try_wait.parity.shared::cta.b64 passed, [$1], $2;
@!passed bra again;
done: mov.u32 $0, 0;
}""")


@gluon.jit
def _ptx(TEXT: gl.constexpr, OPERANDS: gl.constexpr, values):
    """Instructions that Gluon does not have."""
    return gl.inline_asm_elementwise(
        TEXT, OPERANDS, values, dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def _peer_barriers(LENGTH: gl.constexpr, ARRIVALS: gl.constexpr):
    """Barriers of the first program that groups of the second arrive at: their address."""
    ring = _ptx(_DECLARE, "=r,r", [gl.to_tensor(0)])
    for i in gl.static_range(LENGTH):
        _ptx(_INIT, "=r,r,r", [ring + 8 * i, gl.to_tensor(ARRIVALS)])
    mbarrier.fence_init_release_cluster()
    return ring


@gluon.jit
def _listen(ring, event, LENGTH: gl.constexpr):
    """In the first program: until the second has passed an event."""
    turn = event + LENGTH
    _ptx(_LISTEN, "=r,r,r", [ring + turn % LENGTH * 8, ((turn // LENGTH) & 1) ^ 1])


@gluon.jit
def _tell(ring, slot):
    """In the second program: this group is done with a slot."""
    _ptx(_TELL, "=r,r", [ring + slot * 8])


@gluon.jit
def _wait_for_both(empty, released, event, LENGTH: gl.constexpr):
    """Until the groups that read from this slot are done: in the first program, those of both."""
    _wait(empty, event, LENGTH)
    _listen(released, event, LENGTH)


@gluon.jit
def _release(empty, released, slot):
    """A group is done with a slot."""
    mbarrier.arrive(empty.index(slot), count=1)
    _tell(released, slot)


@gluon.jit
def _meet():
    """Until all warps of both programs are here."""
    _cluster.arrive(relaxed=True)
    _cluster.wait()

'''
)
