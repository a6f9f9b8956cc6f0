"""Emits shared elements: computed in a quarter of the lanes, then each lane is repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilesmith.backends.cpu.emission.context import Context
from tilesmith.backends.cpu.emission.shared_lanes.groups import GROUP
from tilesmith.backends.cpu.llvm import lanes
from tilesmith.backends.cpu.llvm.lanes import Lane, Lanes, Strided
from tilesmith.backends.cpu.llvm.registers import index
from tilesmith.backends.cpu.loop_ir.elements import Element

Evaluate = Callable[[Context, Element], Lane]


def repeat_lanes(context: Context, element: Element, evaluate: Evaluate) -> Lane:
    """An element of ``context.shared``; what several of them need is computed once."""
    builder, width = context.builder, context.lanes.width // GROUP
    if not context.quarter:
        context.quarter.append(_quarter(context))
    (quarter,) = context.quarter
    found = lanes.register_of(builder, evaluate(quarter, element), element.dtype, width)
    if not found.type.is_vector:
        return found
    return builder.shuffle(found, found, [lane // GROUP for lane in range(width * GROUP)])


def _quarter(context: Context) -> Context:
    """The first lane of each group."""
    moving = {
        axis: Strided(lane.base, index(GROUP))
        for axis, lane in context.loops.items()
        if isinstance(lane, Strided) and lane.step.constant == 1
    }
    fixed = {e: lane for e, lane in context.known.items() if moving.keys().isdisjoint(e.axes)}
    return replace(
        context,
        loops={**context.loops, **moving},
        lanes=Lanes(context.lanes.width // GROUP),
        known=fixed,
        shared=frozenset(),
        quarter=[],
    )
