"""Configs in few words, as text that equal Configs share, and in the log "tilesmith.autotune".

The log goes to stderr where the user has not set up logging. A stored winner is logged at a first
call, before any tuner is loaded.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from math import inf
from typing import Any

from tilesmith.diagnostics.logs import StderrHandler
from tilesmith.diagnostics.wording import ms_text
from tilesmith.schedule.config import KEYS_BY_NAME, Config

LOGGER_NAME = "tilesmith.autotune"
_NEUTRAL = (None, 0, False, "", "pointer")
_ID_DIGITS = 16
_SHORT_SCALARS = {"num_warps": "w", "num_stages": "s"}
"""What a progress bar has room for."""


def notable(config: Config) -> dict[str, Any]:
    """The keys whose values do anything, in the order of searches."""
    order = {name: place for place, name in enumerate(KEYS_BY_NAME)}
    names = sorted(config, key=lambda name: (order.get(name, len(order)), name))
    return {name: config[name] for name in names if not _is_neutral(name, config[name])}


def config_text(config: Config) -> str:
    """The Config as one line, without keys that have no effect.

    Example:
        >>> config_text(Config(block_sizes=[64], num_warps=4, range_flattens=[None]))
        'Config(block_sizes=[64])'
    """
    arguments = (f"{name}={value!r}" for name, value in notable(config).items())
    return f"Config({', '.join(arguments)})"


def short_text(config: Config) -> str:
    """The Config in a few characters: tile, warps, stages, and how many keys more.

    Example:
        >>> short_text(Config(block_sizes=[64, 32], num_warps=8, pid_type="xyz"))
        '64x32 w8 +1'
    """
    values = notable(config)
    words = ["x".join(str(size) for size in values.pop("block_sizes", []))]
    words += [
        f"{mark}{values.pop(name)}" for name, mark in _SHORT_SCALARS.items() if name in values
    ]
    words += [f"+{len(values)}"] if values else []
    return " ".join(filter(None, words))


def differences(config: Config, default: Config | None) -> dict[str, Any]:
    """The keys on which a Config differs from the default, with the default's values."""
    if default is None:
        return {}
    names = {**config.config, **default.config}
    return {name: default.get(name) for name in names if config.get(name) != default.get(name)}


def canonical_json(config: Config) -> str:
    """The same text for equal Configs."""
    return json.dumps(config.config, sort_keys=True, separators=(",", ":"))


def config_id(config: Config) -> str:
    """A short name of a Config."""
    return sha256(canonical_json(config).encode()).hexdigest()[:_ID_DIGITS]


def _is_neutral(name: str, value: Any) -> bool:
    key = KEYS_BY_NAME.get(name)
    if key is None or name == "block_sizes":
        return False
    if not isinstance(value, list):
        return value == key.default
    if name == "loop_orders":
        return all(order == sorted(order) for order in value)
    plain = (1,) if name == "l2_groupings" else ()
    return all(item in (*_NEUTRAL, *plain) for item in value)


class SearchLog:
    """Writes lines of at least one level."""

    def __init__(self, level: int = logging.INFO, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger(LOGGER_NAME)
        self._level = level

    def write(self, level: int, elapsed_s: float, *lines: str) -> None:
        """The lines as one record each; those after the first are indented."""
        if level < self._level or not lines:
            return
        with _output(self._logger, self._level):
            prefix = f"[{elapsed_s:.0f}s] "
            for line in lines:
                self._logger.log(level, "%s%s", prefix, line)
                prefix = " " * len(prefix)


@contextmanager
def _output(logger: logging.Logger, level: int) -> Iterator[None]:
    """Makes sure that records of a level come out somewhere; leaves the logger as it was."""
    before = logger.level
    handler = None if logger.hasHandlers() else StderrHandler()
    if logger.getEffectiveLevel() > level:
        logger.setLevel(level)
    if handler is not None:
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(before)
        if handler is not None:
            logger.removeHandler(handler)


def stored_text(kernel: str, config: Config, ms: float = inf) -> str:
    """The line about a Config that needed no search."""
    time = f" ({ms_text(ms)})" if ms < inf else ""
    return (
        f"{kernel or 'kernel'}: stored config{time}: {config_text(config)}; "
        "force=True (--force) searches again"
    )
