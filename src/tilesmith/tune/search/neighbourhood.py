"""The Configs one step away from another: single entries, and block sizes two at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product
from typing import Any

from tilesmith.schedule.config import Config
from tilesmith.schedule.space.dimensions import Dimension
from tilesmith.tune.search.candidate_pool import CandidatePool

TRADED_KEYS = ("block_sizes", "reduction_loops")
"""Entries that share one budget of registers and memory, so that one grows when another shrinks."""


def _steps(pool: CandidatePool, config: Config) -> Iterator[Mapping[Dimension, Any]]:
    moves = {
        dimension: dimension.fragment.neighbours(dimension.get(config))
        for dimension in pool.movable(config)
    }
    for dimension, values in moves.items():
        for value in values:
            yield {dimension: value}
    traded = [dimension for dimension in moves if dimension.key in TRADED_KEYS]
    for first, second in combinations(traded, 2):
        for pair in product(moves[first], moves[second]):
            yield {first: pair[0], second: pair[1]}


def neighbours(pool: CandidatePool, config: Config) -> list[Config]:
    """All valid Configs one step from ``config``, without it and without repetitions."""
    found = (pool.vary(config, step) for step in _steps(pool, config))
    return [near for near in dict.fromkeys(found) if near is not None and near != config]


def jump(pool: CandidatePool, config: Config) -> Config | None:
    """A random Config two or three steps away: over a neighbour that fails, or that is slower."""
    moved = pool.movable(config)
    chosen = pool.rng.sample(moved, min(len(moved), pool.rng.choice((2, 3))))
    near = {item: item.fragment.neighbours(item.get(config)) for item in chosen}
    return pool.vary(
        config, {item: pool.rng.choice(values) for item, values in near.items() if values}
    )
