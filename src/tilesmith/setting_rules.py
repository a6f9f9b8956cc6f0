"""What each kind of setting may be, how its variable is read, and which values are refused.

A setting whose field nothing reads has only one value that means anything, its default; ``REFUSED``
says why. Only for those in ``ESSENTIAL`` and ``AT_BIND`` another value is an error.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, cast

TRUE_WORDS = ("1", "true", "yes", "on")
FALSE_WORDS = ("0", "false", "no", "off")


class NameNotKnownError(ValueError):
    """A word in a value that means nothing; the text suggests another."""


class RefMode(Enum):
    """How a kernel runs: compiled, or by the reference interpreter with torch on the CPU."""

    OFF = "off"
    EAGER = "eager"


@dataclass(frozen=True)
class Rule:
    """What a setting may be. Both functions raise ValueError or TypeError at anything else."""

    allowed: str
    accept: Callable[[Any], object]
    """The value to keep for a value given in Python."""
    parse: Callable[[str], object] = str
    """The value meant by the text of an environment variable."""


def _instance_of(kind: type) -> Callable[[object], object]:
    def accept(value: object) -> object:
        if isinstance(value, kind):
            return value
        raise TypeError

    return accept


def _parse_flag(text: str) -> bool:
    word = text.lower()
    if word in TRUE_WORDS + FALSE_WORDS:
        return word in TRUE_WORDS
    raise ValueError


def whole(minimum: int, *, optional: bool = False) -> Rule:
    """Integers from a least one on; ``optional``: or None."""

    def accept(value: object) -> int | None:
        if value is None and optional:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and value >= minimum:
            return value
        raise ValueError

    return Rule(f"an integer >= {minimum}{' or None' if optional else ''}", accept, int)


def _accept_number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value)
    raise ValueError


def one_of(*names: str) -> Rule:
    """One of these words; capitals do not matter."""
    meanings = {name.lower(): name for name in names}

    def accept(value: str) -> str:
        if value.lower() not in meanings:
            raise ValueError
        return meanings[value.lower()]

    return Rule("one of " + ", ".join(names), accept)


def _accept_index_dtype(value: object) -> str | None:
    # Takes torch.int32 too: torch prints its dtypes as "torch.int32".
    name = str(value).removeprefix("torch.")
    if value is None or name == "auto":
        return None
    if name in ("int32", "int64"):
        return name
    raise ValueError


def _parse_ref_mode(text: str) -> RefMode:
    return RefMode.EAGER if _parse_flag(text) else RefMode.OFF


def _accept_warnings(value: Sequence[str | type]) -> tuple[str | type, ...]:
    if isinstance(value, str) or not all(isinstance(item, (str, type)) for item in value):
        raise TypeError
    return tuple(value)


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _accept_log_level(value: object) -> int:
    if isinstance(value, str):
        value = int(value) if value.isdigit() else logging.getLevelName(value.upper())
    return cast("int", whole(0).accept(value))


def _accept_precompile(value: object) -> str | None:
    # False says, as None does, that nothing is to be built ahead.
    if value in (None, False, "", "0"):
        return None
    return cast("str", one_of("fork", "spawn").accept(value))


def _accept_paths(value: Sequence[str | os.PathLike[str]]) -> list[str]:
    if isinstance(value, str):
        raise TypeError
    return [str(Path(item).expanduser()) for item in value]


def _accept_path(value: str | os.PathLike[str] | None) -> str | None:
    return None if value is None else str(Path(value).expanduser())


def _parse_mapping(text: str) -> object:
    return json.loads(text if text.startswith("{") else Path(text).read_text())


def _accept_callable(value: object) -> object:
    if value is None or callable(value):
        return value
    raise TypeError


FLAG_WORDS = "True or False (in the environment 1/true/yes/on or 0/false/no/off)"
FLAG = Rule(FLAG_WORDS, _instance_of(bool), _parse_flag)
NUMBER = Rule("a number >= 0 or None", _accept_number, float)
PATH = Rule("a path", _accept_path)
CALLABLE = Rule("a function or None", _accept_callable)
ANYTHING = Rule("anything", lambda value: value)
CONFIGS = Rule("Configs or dicts (in the environment: JSON)", lambda value: value, json.loads)
BACKEND = one_of("auto", "triton", "cpu", "reference", "cute", "tileir", "pallas", "metal")
DOT_PRECISIONS = {"default": "tf32", "high": "tf32x3", "highest": "ieee"}
"""Other words for a precision, kept as they were given."""
DOT_PRECISION = one_of("ieee", "tf32", "tf32x3", *DOT_PRECISIONS)
EFFORT = one_of("none", "quick", "full")
GRADIENTS = one_of("derive", "warn", "error", "ignore")
INDEX_DTYPE = Rule('int32, int64, "auto" or None', _accept_index_dtype)
REF_MODE = Rule("RefMode.OFF or RefMode.EAGER", _instance_of(RefMode), _parse_ref_mode)
WARNINGS = Rule("a list of warning classes or their names", _accept_warnings, _parse_list)
LOG_LEVEL = Rule("a logging level: a name or a number >= 0", _accept_log_level)
PRECOMPILE = Rule('"fork", "spawn", False or None', _accept_precompile)
PATHS = Rule("a list of paths", _accept_paths, _parse_list)
MAPPING_WORDS = "a dict (in the environment: JSON, or the path of a JSON file)"
MAPPING = Rule(MAPPING_WORDS, lambda value: dict(value.items()), _parse_mapping)
CACHE = one_of(
    *("LocalAutotuneCache", "StrictLocalAutotuneCache", "RemoteAutotuneCache"),
    *("StrictRemoteAutotuneCache", "AOTAutotuneCache"),
)
TEXT = Rule("a string", str)
LOG_TOPICS = {
    "trace": "every trace of a kernel: for which arguments, and how long it took",
    "config": "which config runs, and why that one",
    "compile": "the time of every stage, of machine code and of Triton; +compile: of every pass",
    "code": "how much code was generated, and for what; +code: the code itself",
    "cache": "what was found in the cache, and what had to be made",
    "launch": "the first launch of compiled code: on what, how many programs and threads",
    "autotune": "searches for configs, as autotune_log_level has them; +autotune: every candidate",
}
"""What ``logs`` may name, besides ``all``; the loggers are ``tilesmith.<topic>``."""


def log_levels(text: str) -> dict[str, int]:
    """The level of each topic that ``logs`` names.

    Example:
        >>> log_levels("config, +cache")
        {'config': 20, 'cache': 10}
    """
    found: dict[str, int] = {}
    for word in _parse_list(text):
        name = word.removeprefix("+")
        if name not in (*LOG_TOPICS, "all"):
            near = get_close_matches(name, [*LOG_TOPICS, "all"], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise NameNotKnownError(f"there is no topic {name!r}{hint}")
        level = logging.INFO if name == word else logging.DEBUG
        found |= dict.fromkeys(LOG_TOPICS if name == "all" else [name], level)
    return found


def nearest(name: str, known: Sequence[str]) -> str:
    """A suggestion for a name that does not exist: the nearest one, or all there are."""
    near = get_close_matches(name, known, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(sorted(known))}"


def _accept_logs(value: object) -> object:
    if not isinstance(value, str):
        raise TypeError
    log_levels(value)
    return value


LOGS = Rule(
    f"topics, separated by commas: all, {', '.join(LOG_TOPICS)}; with + for more", _accept_logs
)
REFUSED = {
    "distributed": "there are no kernels over several devices",
    "torch_compile_fusion": "torch.compile calls a kernel as it is and fuses nothing into it",
    "autotune_with_torch_compile_fusion": "torch.compile fuses nothing into a kernel",
    "autotune_cache": "winners are kept in the files of cache_dir only, and count for the same "
    "source, shapes, settings, device and toolchain",
    "autotune_adaptive_timeout": "limits are what autotune_compile_timeout and "
    "autotune_benchmark_timeout say, whatever other candidates took",
    "autotune_benchmark_subprocess": "candidates always run in processes of their own: one that "
    "crashes must not end yours",
    "autotune_rebenchmark_threshold": "the best of a search are always measured again, side by "
    "side, until they are told apart",
    "autotune_suspicious_rebenchmark_ratio": "every time comes with its spread, and the best are "
    "always measured again",
    "autotune_search_acf": "there are no files of compiler controls in a config",
    "autotune_benchmark_fn": "candidates run in other processes, where a function of yours is not; "
    "autotuner_fn replaces the whole search",
    "autotune_initial_population_strategy": "a search starts from the model's best configs; "
    "autotune_seed_configs adds yours",
}
"""Settings of Helion's of which every value but the default is refused, and why."""
AT_BIND = ("distributed",)
"""Refused once a kernel is bound or called, since a file may define such a kernel and use others;
a variable, which is for all kernels, at once."""
ESSENTIAL = ("autotune_benchmark_fn",)
"""Refused with an error: what was asked for would not happen. The others could only make a kernel
faster or a search shorter, so a warning says why, and nothing reads them: ported files run."""
AS_DEFAULT: dict[str, tuple[object, ...]] = {
    "autotune_cache": ("StrictLocalAutotuneCache",),
    "autotune_initial_population_strategy": ("from_best_available",),
}
"""Other values that say what is done anyway."""
