"""Which of a few configs a shape gets, by its sizes: a small tree of comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt

from tilesmith.dispatch.cover import ENOUGH, Timings

MIN_GAIN = 0.002
"""A comparison must make shapes this much faster in the mean: fewer are easier to believe."""


@dataclass(frozen=True)
class Leaf:
    """Shapes that get one config."""

    config: int
    shapes: tuple[int, ...]


@dataclass(frozen=True)
class Branch:
    """Shapes with a size up to a limit, and those above."""

    feature: str
    """An expression over the kernel's parameters."""
    limit: int
    low: Node
    high: Node


Node = Leaf | Branch
Features = Mapping[str, Sequence[int]]
"""For each expression its value for each shape."""


def grow(timings: Timings, chosen: Sequence[int], features: Features, max_leaves: int) -> Node:
    """A tree over shapes: the comparison that helps most first, while one helps enough."""
    every = tuple(range(len(timings.shapes)))
    root: Node = _leaf(timings, chosen, every)
    while len(list(leaves(root))) < max_leaves:
        options = [
            (gain, leaf, branch)
            for leaf in leaves(root)
            for gain, branch in [_best_branch(timings, chosen, features, leaf)]
            if branch is not None
        ]
        gain, leaf, branch = max(options, key=lambda o: o[0], default=(0.0, None, None))
        if leaf is None or branch is None or gain < MIN_GAIN * len(every):
            break
        root = _replaced(root, leaf, branch)
    return root


def leaves(node: Node) -> Iterator[Leaf]:
    """From the smallest sizes to the largest."""
    if isinstance(node, Leaf):
        yield node
    else:
        yield from leaves(node.low)
        yield from leaves(node.high)


def decided_logs(timings: Timings, root: Node) -> list[float]:
    """What each shape loses with the config that the tree gives it."""
    found = {
        shape: timings.logs[shape][leaf.config] for leaf in leaves(root) for shape in leaf.shapes
    }
    return [found[shape] for shape in range(len(timings.shapes))]


def _leaf(timings: Timings, chosen: Sequence[int], shapes: tuple[int, ...]) -> Leaf:
    return Leaf(min(chosen, key=lambda config: _lost(timings, config, shapes)), shapes)


def _lost(timings: Timings, config: int, shapes: Sequence[int]) -> float:
    return sum(timings.logs[shape][config] for shape in shapes)


def _best_branch(
    timings: Timings, chosen: Sequence[int], features: Features, leaf: Leaf
) -> tuple[float, Branch | None]:
    """The comparison that helps most within a leaf, and how much."""
    before = _lost(timings, leaf.config, leaf.shapes)
    best: tuple[float, Branch | None] = (ENOUGH, None)
    for feature, values in features.items():
        sizes = sorted({values[shape] for shape in leaf.shapes})
        for below, above in pairwise(sizes):
            # Between two sizes the geometric mean: sizes differ by factors.
            limit = max(below, min(above - 1, isqrt(below * above)))
            parts = [
                _leaf(timings, chosen, tuple(s for s in leaf.shapes if (values[s] <= limit) is low))
                for low in (True, False)
            ]
            gain = before - sum(_lost(timings, part.config, part.shapes) for part in parts)
            if gain > best[0] + ENOUGH:
                best = gain, Branch(feature, limit, *parts)
    return best


def _replaced(node: Node, leaf: Leaf, branch: Branch) -> Node:
    if node is leaf:
        return branch
    if isinstance(node, Leaf):
        return node
    low, high = (_replaced(part, leaf, branch) for part in (node.low, node.high))
    return Branch(node.feature, node.limit, low, high)
