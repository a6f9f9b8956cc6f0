"""Turns of a loop: how many there are, where the tile of one begins."""

from __future__ import annotations

from tilesmith.backends.triton.emission.axes import start_name
from tilesmith.backends.triton.emission.spelling import Expr
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter, num_groups
from tilesmith.backends.triton.warp_roles.nests.listing import Listing
from tilesmith.backends.triton.warp_roles.plan import RolePlan
from tilesmith.backends.triton.warp_roles.protocol import THREE_GROUPS


def emit_turns(emitter: RoleEmitter, plan: RolePlan) -> None:
    """How often the loop runs."""
    top = plan.top
    length = emitter.expr(top.ends[0]) - emitter.expr(top.begins[0])
    block = emitter.spelling.block_name(plan.loop.blocks[0])
    size = emitter.schedule.symbols[plan.loop.blocks[0]]
    if plan.listing is not None:
        _name_entries(emitter, plan.listing)
        emitter.writer.line(f"turns = gl.maximum({length}, 0) * {plan.listing.size // size}")
    elif not isinstance(length.constant, int):
        emitter.writer.line(f"turns = gl.cdiv(gl.maximum({length}, 0), {block})")
    else:
        turns = max(0, -(-length.constant // size))
        if num_groups(emitter.schedule) < THREE_GROUPS:
            emitter.writer.line(f"turns = {turns}")
        else:
            emitter.writer.line(f"turns = {emitter.spelling.helper('_count')}({turns})")


def emit_start(emitter: RoleEmitter, plan: RolePlan, turn: str) -> None:
    """The first index of a turn's tile, in a variable."""
    loop = plan.loop
    block = emitter.spelling.block_name(loop.blocks[0])
    steps = Expr(f"{turn} * {block}")
    if plan.listing is not None:
        steps = _emit_entry(emitter, plan, turn, block)
    start = start_name(loop.blocks[0], loop.body.args[0])
    emitter.writer.line(f"{start} = {emitter.expr(loop.begins[0]) + steps}")
    emitter.bind(loop.body.args[0], start)


def _name_entries(emitter: RoleEmitter, listing: Listing) -> None:
    """Variables of what is known of an entry: others are told of positions before there are any."""
    fresh = emitter.spelling.names.fresh
    emitter.bind(listing.outer.body.args[0], fresh(listing.outer.body.args[0].name or "entry"))
    for value in (value for op in listing.scalars for value in op.results):
        if value not in emitter.uses.inlined:
            emitter.bind(value, fresh(emitter.name_hint(value)))


def _emit_entry(emitter: RoleEmitter, plan: RolePlan, turn: str, block: str) -> Expr:
    """Where the block of a turn lies; how far the turn is in it."""
    listing = plan.listing
    assert listing is not None
    entry, first = listing.outer.body.args[0], listing.outer.begins[0]
    steps = listing.size // emitter.schedule.symbols[plan.loop.blocks[0]]
    number = Expr(turn) if steps == 1 else Expr(f"{turn} // {steps}")
    emitter.writer.line(f"{emitter.expr(entry)} = {emitter.expr(first) + number}")
    for op in listing.scalars:
        emitter.op(op)
    return Expr("0", constant=0) if steps == 1 else Expr(f"{turn} % {steps} * {block}")
