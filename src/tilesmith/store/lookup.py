"""The Config that an earlier search chose for such a call, found without loading a tuner.

A winner counts for what was asked for: the best of a list of Configs, or with some keys fixed, is
another winner than the best of all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.kernel_warnings import StoredConfigUnusable
from tilesmith.diagnostics.location import UNKNOWN
from tilesmith.schedule.config import Config
from tilesmith.store.conditions import StoredKernel, make_key
from tilesmith.store.key import StoreKey, digest_text, join_keys
from tilesmith.store.search_log import SearchLog, stored_text
from tilesmith.store.winners import Winner, Winners


def winner_key(
    conditions: StoreKey,
    configs: Sequence[Config],
    overrides: Mapping[str, Any],
    is_deterministic: bool,
) -> StoreKey:
    """The key of winners, from that of measurements, for what they are chosen from.

    That is a list of Configs, unless it is empty, with some keys overridden.
    """
    given = [str(config) for config in configs]
    asked = [f"one of {len(given)} configs {digest_text(*given)}"] if given else []
    asked += [f"with {name}={value}" for name, value in sorted(overrides.items())]
    asked += ["deterministic"] if is_deterministic else []
    return join_keys([conditions], ", ".join(asked))


def find_winner(winners: Winners, kernel: str, key: Callable[[], StoreKey]) -> Winner | None:
    """The winner of an earlier search with the same toolchain.

    The key is made only where the kernel has some winner: making it reads all compiling sources.
    """
    winner = winners.lookup(key()) if winners.has_any(kernel) else None
    return None if winner is None or winner.is_stale else winner


def usable_config(
    bound: StoredKernel, winner: Winner | None, key: Callable[[], StoreKey]
) -> Config | None:
    """The winner's Config as the kernel takes it; where it does not, None and a warning.

    Raises CacheAssertionError if there is no winner and the settings assert that there is one.
    """
    definition = bound.definition
    if winner is None:
        if definition.settings.assert_cache_hit:
            raise errors.CacheAssertionError(function=definition.name, key=key().digest)
        return None
    try:
        return bound.config_spec.normalize(winner.config)
    except errors.InvalidConfig as error:
        problem = str(error).splitlines()[0]
        definition.warnings.warn(
            StoredConfigUnusable, loc=UNKNOWN, function=definition.name, problem=problem
        )
        return None


def find_stored_config(
    bound: StoredKernel, args: Sequence[Any], configs: Sequence[Config] = ()
) -> Config | None:
    """What a first call takes instead of its default, and a line in the log; None: nothing stored.

    ``configs`` are those of the decorator.
    """
    name, settings = bound.definition.name, bound.definition.settings
    # A list of several Configs restricts what is taken, a single one does not.
    listed = configs if len(configs) > 1 else ()
    scope = (listed, settings.autotune_config_overrides, settings.deterministic)

    @cache
    def key() -> StoreKey:
        return winner_key(make_key(bound, args), *scope)

    winner = None if settings.skip_cache else find_winner(Winners(settings.cache_dir), name, key)
    config = usable_config(bound, winner, key)
    if config is not None and winner is not None:
        log = SearchLog(settings.autotune_log_level)
        log.write(logging.INFO, 0.0, stored_text(name, config, winner.median_ms))
    return config
