"""Panels that many programs would reduce together, each alone on its multiprocessor.

The tile that is fastest for a deep contraction fills a multiprocessor. Nothing works there while a
program waits for the others of its panel, once for each reduction of a row. A launch of its own
reads the product once more, but programs of the product start their next tile at once.

bf16 on an H200, an exchange over two launches with roles, in turns: layer norm of 131072x4096x2048
1.07 (3.81 ms / 3.57), log-sum-exp of 131072x3072x2048 1.08 (2.82 / 2.61). Rows that are reduced
once are level: rms norm of 131072x8192x2048 1.01, of 16384x4096x4096 0.99, l2 norm of
131072x6144x1024 0.98; and so are shorter sums, where two programs share a multiprocessor: softmax
of 131072x2048x2048 1.00, layer norm of 131072x512x2048 0.83.
"""

from __future__ import annotations

from tilesmith.backends.triton.heuristics.walkers import waits_once
from tilesmith.schedule.facts.collect import collect_facts
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.rules import TargetedKernel

DEEP, SIDES = 3072, (128, 256)
"""Steps of a sum from which on programs that exchange have the largest tile, and its sides."""
MANY = 8
"""Programs of a panel; five to seven were not timed."""


def do_many_wait(kernel: TargetedKernel) -> bool:
    """Whether programs of an exchange would fill the device so, and wait more than once."""
    product = kernel.outline.function.before
    facts = () if product is None else collect_facts(FunctionOutline(product)).matmuls
    if len(facts) != 1 or waits_once(kernel):
        return False
    (fact,) = facts
    rows, columns = (-(-axis.extent_or(0) // side) for axis, side in zip((fact.m, fact.n), SIDES))
    is_deep = fact.itemsize == 2 and fact.k.extent_or(0) >= DEEP
    return is_deep and columns >= MANY and rows * columns >= kernel.target.num_sms
