"""Headers of loops; loops that end before they begin, and scans along one element.

Triton counts the turns of a loop that it unrolls without signs (3.6, 3.7.1): ``range(90, 27, 32)``
would have 134 million, of which the last few, with indices below 0, are run. A scan along an axis
of one element fails an assertion of its compiler (3.6), which ends the process.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import Expr, call, literal
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.reduction import Scan, ScanWith
from tilesmith.schedule.schedule import LoopOptions


def tile_range(
    bounds: Sequence[Expr], options: LoopOptions, is_ordered: bool = False, *, is_forward: bool
) -> Expr:
    """A loop that Triton may pipeline and unroll; ``is_forward``: it cannot begin past its end.

    One that is unrolled and might is told to end where it begins.
    """
    begin, end, *steps = bounds if len(bounds) > 1 else [literal(0), *bounds]
    first, last = begin.constant, end.constant
    is_counted = first is not None and last is not None and first <= last
    if options.unroll_factor > 1 and not (is_forward or is_counted):
        bounds = [begin, call("tl.maximum", begin, end), *steps]
    return call("tl.range", *bounds, *_arguments(options, is_ordered))


def _arguments(options: LoopOptions, is_ordered: bool) -> list[str]:
    """Keyword arguments of ``tl.range`` that differ from its defaults."""
    num_stages = 1 if is_ordered else options.num_stages
    shown = {
        f"num_stages={num_stages}": num_stages,
        f"loop_unroll_factor={options.unroll_factor}": options.unroll_factor > 1,
        "disallow_acc_multi_buffer=True": options.multi_buffer is False,
        "flatten=True": options.flatten,
        "warp_specialize=True": options.warp_specialize,
    }
    return [text for text, is_shown in shown.items() if is_shown]


def is_forward(emitter: Emitter, op: Loop, axis: int) -> bool:
    """Whether a loop begins at 0 and ends at a size or the like."""
    is_from_zero = emitter.expr(op.begins[axis]).constant == 0
    return is_from_zero and emitter.signs.is_non_negative(op.ends[axis])


def is_alone(emitter: Emitter, op: Scan | ScanWith) -> bool:
    """Whether a scan has one element to combine: itself."""
    x = op.x if isinstance(op, Scan) else op.xs[0]
    return emitter.schedule.physical(x.tile.shape[op.axis]) == 1
