"""Panels that many programs would reduce together, each alone on its multiprocessor.

The tile that is fastest for a deep contraction fills a multiprocessor. Nothing works there while a
program waits for the others of its panel, and the more they are, the later the last one comes. A
launch of its own reads the product once more, but programs of the product start their next tile at
once. 131072 rows, bf16 on an H200, an exchange over two launches, in turns: layer norm of 4096x2048
1.07 (3.93 ms / 3.68), log-sum-exp of 3072x2048 1.06 (2.96 / 2.76), rms norm of 8192x2048 1.01 to
1.04 by the rows at a time. Four programs to a panel do not wait as long: l2 norm of 6144x1024 0.97.
"""

from __future__ import annotations

from tilesmith.backends.triton.heuristics.measured.tiles import DEEP
from tilesmith.ir.function import Function
from tilesmith.schedule.facts.collect import collect_facts
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.targets import Target

SIDES = (128, 256)
"""Tiles of an exchange, from `DEEP` steps on."""
MANY = 8
"""Programs of a panel; five to seven were not timed."""


def do_many_wait(product: Function | None, target: Target) -> bool:
    """Whether programs of an exchange would fill the device so."""
    facts = () if product is None else collect_facts(FunctionOutline(product)).matmuls
    if len(facts) != 1:
        return False
    (fact,) = facts
    rows, columns = (-(-axis.extent_or(0) // side) for axis, side in zip((fact.m, fact.n), SIDES))
    is_deep = fact.itemsize == 2 and fact.k.extent_or(0) >= DEEP
    return is_deep and columns >= MANY and rows * columns >= target.num_sms
