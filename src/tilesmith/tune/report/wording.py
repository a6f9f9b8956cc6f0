"""Times, shares, counts and Configs in few words, the same in logs, tables and pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from math import inf
from typing import Any

from tilesmith.schedule.config import Config
from tilesmith.schedule.config_keys import KEYS_BY_NAME
from tilesmith.tune.outcome import Outcome, Verdict

_NEUTRAL = (None, 0, False, "", "pointer")
_ID_DIGITS = 16
_SHORT_SCALARS = {"num_warps": "w", "num_stages": "s"}
"""What a progress bar has room for."""

BEYOND_ROOFLINE = "beyond the estimated roofline"


def number_text(value: float) -> str:
    """Four significant digits, never an exponent for a large value.

    Example:
        >>> number_text(0.0055), number_text(0.012346), number_text(123456.7), number_text(inf)
        ('0.0055', '0.01235', '123457', '-')
    """
    if value == inf:
        return "-"
    return f"{value:.4g}" if value < 999.95 else f"{value:.0f}"


def ms_text(value: float) -> str:
    """A time with its unit."""
    return f"{number_text(value)} ms"


def roofline_text(roofline_ms: float, ms: float) -> str:
    """How near a time is to the roofline, which is an estimate and may be beaten.

    Example:
        >>> roofline_text(0.9, 1.0), roofline_text(1.2, 1.0)
        ('90% of the roofline', 'beyond the estimated roofline')
    """
    share = roofline_ms / ms
    return f"{percent_text(share)} of the roofline" if share < 1.005 else BEYOND_ROOFLINE


def percent_text(share: float) -> str:
    """A share as percent: one digit after the point below ten.

    Example:
        >>> percent_text(0.0041), percent_text(0.958)
        ('0.4%', '96%')
    """
    percent = 100 * share
    return f"{percent:.1f}%" if percent < 9.95 else f"{percent:.0f}%"


def counted(count: int, noun: str) -> str:
    """The count with its noun.

    Example:
        >>> counted(1, "config"), counted(40, "config")
        ('1 config', '40 configs')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def compare_text(ms: float, default_ms: float) -> str:
    """How a time stands to that of the default Config, noise aside."""
    if ms <= 0 or default_ms == inf:
        return ""
    ratio = default_ms / ms
    if 0.995 < ratio < 1.005:
        return f"as fast as the default ({ms_text(default_ms)})"
    if ratio < 1:
        return f"{1 / ratio:.2f}x slower than the default ({ms_text(default_ms)})"
    return f"{ratio:.2f}x faster than the default ({ms_text(default_ms)})"


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


def rejections(outcomes: Iterable[Outcome]) -> dict[Verdict, list[Outcome]]:
    """Outcomes without a time by verdict, the most frequent first."""
    groups: dict[Verdict, list[Outcome]] = {}
    for outcome in outcomes:
        if not outcome.verdict.is_timed:
            groups.setdefault(outcome.verdict, []).append(outcome)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def first_line(text: str, limit: int = 160) -> str:
    """The first line that is not empty, cut where it gets long."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = lines[0] if lines else ""
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


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
