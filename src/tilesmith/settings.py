"""Every setting of a kernel: a keyword, an environment variable and a default for each.

Keywords win over the environment, the environment over defaults. All is checked and read once, when
the frozen ``Settings`` is made; no other module looks at the environment.
"""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, cast

PREFIX = "TILESMITH_"
TRUE_WORDS = ("1", "true", "yes", "on")
FALSE_WORDS = ("0", "false", "no", "off")


class SettingError(Exception):
    """A setting that does not exist, or not with such a value: also a TypeError or ValueError."""


class UnknownSettingError(SettingError, TypeError):
    """A name that no setting has."""


class SettingValueError(SettingError, ValueError):
    """A value that a setting does not take."""


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


def _whole(minimum: int, *, optional: bool = False) -> Rule:
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


def _one_of(*names: str, **aliases: str) -> Rule:
    meanings = {name.lower(): name for name in names} | aliases

    def accept(value: str) -> str:
        if value.lower() not in meanings:
            raise ValueError
        return meanings[value.lower()]

    spelled = [f"{alias} (= {name})" for alias, name in aliases.items()]
    return Rule("one of " + ", ".join([*names, *spelled]), accept)


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
    return cast("int", _whole(0).accept(value))


def _accept_precompile(value: object) -> str | None:
    if value in (None, "", "0"):
        return None
    return cast("str", _one_of("fork", "spawn").accept(value))


def _accept_paths(value: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError
    return tuple(str(Path(item).expanduser()) for item in value)


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
BACKEND = _one_of("auto", "triton", "cpu", "reference", "cute", "tileir")
DOT_PRECISION = _one_of("ieee", "tf32", "tf32x3", default="tf32", high="tf32x3", highest="ieee")
EFFORT = _one_of("none", "quick", "full")
INDEX_DTYPE = Rule('int32, int64, "auto" or None', _accept_index_dtype)
REF_MODE = Rule("RefMode.OFF or RefMode.EAGER", _instance_of(RefMode), _parse_ref_mode)
WARNINGS = Rule("a list of warning classes or their names", _accept_warnings, _parse_list)
LOG_LEVEL = Rule("a logging level: a name or a number >= 0", _accept_log_level)
PRECOMPILE = Rule('"fork", "spawn" or None', _accept_precompile)
PATHS = Rule("a list of paths", _accept_paths, _parse_list)
MAPPING_WORDS = "a dict (in the environment: JSON, or the path of a JSON file)"
MAPPING = Rule(MAPPING_WORDS, lambda value: dict(value.items()), _parse_mapping)
CACHE = _one_of(
    *("LocalAutotuneCache", "StrictLocalAutotuneCache", "RemoteAutotuneCache"),
    *("StrictRemoteAutotuneCache", "AOTAutotuneCache"),
)
TEXT = Rule("a string", str)


def _setting(default: Any, rule: Rule, *variables: str, is_hashed: bool = True) -> Any:
    """A field with its rule, and its environment variables if they are not named after it."""
    metadata = {"rule": rule, "variables": variables}
    if isinstance(default, dict):
        return field(default_factory=dict[str, object], hash=is_hashed, metadata=metadata)
    return field(default=default, hash=is_hashed, metadata=metadata)


@dataclass(frozen=True, init=False)
class Settings:
    """The settings of one kernel.

    Example:
        >>> Settings(static_shapes=False, index_dtype="int64").static_shapes
        False
    """

    backend: str = _setting("auto", BACKEND)
    """Where kernels run; ``auto``: Triton for tensors on a GPU, native code for those on a CPU."""
    num_threads: int = _setting(0, _whole(0))
    """Threads of native code; 0: as many as torch uses."""
    check: bool = _setting(False, FLAG)
    """Whether every access is checked for bounds and races, slowly, by the interpreter."""
    verify_passes: bool = _setting(False, FLAG)
    """Whether the IR is verified after every pass; ``check`` does so, too."""
    static_shapes: bool = _setting(True, FLAG)
    """Whether sizes and strides are constants of the compiled kernel."""
    index_dtype: str | None = _setting(None, INDEX_DTYPE)
    """Width of index arithmetic; None: 64 bits exactly where an access needs it."""
    dot_precision: str = _setting(
        "ieee", DOT_PRECISION, "TILESMITH_DOT_PRECISION", "TRITON_F32_DEFAULT"
    )
    """How fp32 operands are multiplied in dots."""
    fast_math: bool = _setting(False, FLAG)
    """Whether exp, division and the like may be approximate."""
    ignore_warnings: tuple[str | type, ...] = _setting((), WARNINGS)
    """Warnings that are not printed."""
    persistent_reserved_sms: int = _setting(0, _whole(0))
    """Multiprocessors that persistent kernels leave free."""
    distributed: bool = _setting(False, FLAG)
    allow_warp_specialize: bool = _setting(True, FLAG)
    triton_do_not_specialize: bool = _setting(False, FLAG)
    debug_dtype_asserts: bool = _setting(False, FLAG)
    print_output_code: bool = _setting(False, FLAG)
    print_repro: bool = _setting(False, FLAG)
    output_origin_lines: bool = _setting(True, FLAG)
    ref_mode: RefMode = _setting(RefMode.OFF, REF_MODE, "TILESMITH_INTERPRET")
    triton_interpret: bool = _setting(False, FLAG, "TRITON_INTERPRET")
    torch_compile_fusion: bool = _setting(False, FLAG)

    cache_dir: str = _setting("", PATH)
    """Where compiled kernels and tuned configs are kept."""
    skip_cache: bool = _setting(False, FLAG)
    assert_cache_hit: bool = _setting(False, FLAG)
    logs: str = _setting("", TEXT)

    force_autotune: bool = _setting(False, FLAG)
    disallow_autotuning: bool = _setting(False, FLAG)
    autotune_effort: str = _setting("none", EFFORT)
    """How long to search at a first call: 0, 15 or 120 seconds."""
    autotuner: str = _setting("ModelFirstSearch", TEXT)
    """The search method."""
    deterministic: bool = _setting(False, FLAG)
    """Whether results must be equal bit for bit, run after run: no schedule may depend on the order
    of programs, neither the default nor what tuning accepts."""
    autotuner_fn: Callable[..., object] | None = _setting(None, CALLABLE)
    autotune_cache: str = _setting("LocalAutotuneCache", CACHE)
    autotune_force_persistent: bool = _setting(False, FLAG)
    autotune_log_level: int = _setting(logging.INFO, LOG_LEVEL)
    autotune_log: str | None = _setting(None, PATH)
    autotune_log_details: bool = _setting(False, FLAG)
    autotune_compile_timeout: int = _setting(60, _whole(1))
    autotune_adaptive_timeout: bool = _setting(True, FLAG)
    autotune_precompile: str | None = _setting("fork", PRECOMPILE)
    autotune_precompile_jobs: int | None = _setting(None, _whole(1, optional=True))
    autotune_benchmark_subprocess: bool = _setting(True, FLAG)
    autotune_benchmark_timeout: int = _setting(30, _whole(1))
    autotune_random_seed: int | None = _setting(None, _whole(0, optional=True))
    autotune_best_of_k: int = _setting(1, _whole(1))
    autotune_accuracy_check: bool = _setting(True, FLAG)
    autotune_baseline_fn: Callable[..., object] | None = _setting(None, CALLABLE)
    autotune_baseline_atol: float | None = _setting(None, NUMBER)
    autotune_baseline_rtol: float | None = _setting(None, NUMBER)
    autotune_baseline_accuracy_check_fn: Callable[..., object] | None = _setting(None, CALLABLE)
    autotune_rebenchmark_threshold: float | None = _setting(
        None, NUMBER, "TILESMITH_REBENCHMARK_THRESHOLD"
    )
    autotune_suspicious_rebenchmark_ratio: float | None = _setting(None, NUMBER)
    autotune_search_acf: tuple[str, ...] = _setting((), PATHS)
    autotune_progress_bar: bool = _setting(True, FLAG)
    autotune_max_generations: int | None = _setting(None, _whole(0, optional=True))
    autotune_budget_seconds: float | None = _setting(None, NUMBER)
    autotune_stop_at_roofline: float | None = _setting(None, NUMBER)
    """End a search when the best reaches this share of the roofline, e.g. 0.95."""
    autotune_ignore_errors: bool = _setting(False, FLAG)
    autotune_config_overrides: Mapping[str, object] = _setting({}, MAPPING, is_hashed=False)
    autotune_seed_configs: object = _setting(None, CONFIGS, is_hashed=False)
    disable_autotuner_heuristics: bool = _setting(False, FLAG)
    autotune_config_filter: Callable[..., object] | None = _setting(None, CALLABLE)
    autotune_benchmark_fn: Callable[..., object] | None = _setting(None, CALLABLE)
    autotune_best_available_max_configs: int = _setting(
        20, _whole(0), "TILESMITH_BEST_AVAILABLE_MAX_CONFIGS"
    )
    autotune_best_available_max_cache_scan: int = _setting(
        500, _whole(0), "TILESMITH_BEST_AVAILABLE_MAX_CACHE_SCAN"
    )
    autotune_initial_population_strategy: object = _setting(
        None, ANYTHING, "TILESMITH_AUTOTUNER_INITIAL_POPULATION", is_hashed=False
    )
    autotune_with_torch_compile_fusion: bool = _setting(False, FLAG)
    autotune_log_search_space: bool = _setting(False, FLAG)
    autotune_log_search_space_verbose: bool = _setting(False, FLAG)
    autotune_log_search_space_path: str | None = _setting(None, PATH)

    def __init__(self, **values: object) -> None:
        self._fill(values, os.environ)

    @classmethod
    def from_environment(
        cls, overrides: Mapping[str, object], environ: Mapping[str, str] = os.environ
    ) -> Settings:
        """Settings from keywords and an environment; pass ``environ={}`` for pure defaults."""
        settings = cls.__new__(cls)
        settings._fill(overrides, environ)
        return settings

    def _fill(self, values: Mapping[str, object], environ: Mapping[str, str]) -> None:
        known = {item.name: item for item in fields(self)}
        for name in values:
            if name not in known:
                raise UnknownSettingError(_unknown_setting(name, list(known)))
        for name, item in known.items():
            value = _check(item, values[name]) if name in values else _read(item, environ)
            object.__setattr__(self, name, value)
        if not self.cache_dir:
            object.__setattr__(self, "cache_dir", _default_cache_dir(environ))

    def to_dict(self) -> dict[str, object]:
        """All settings by name, as shallow copies."""
        return {item.name: copy.copy(getattr(self, item.name)) for item in fields(self)}


def _unknown_setting(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(sorted(known))}"
    return f"unknown setting {name!r}; {hint}"


def _check(item: Field[Any], value: object, source: str = "") -> object:
    rule: Rule = item.metadata["rule"]
    try:
        return rule.accept(value)
    except (AttributeError, TypeError, ValueError):
        raise SettingValueError(_not_allowed(item, value, source)) from None


def _read(item: Field[Any], environ: Mapping[str, str]) -> object:
    """The value from the first variable that is set and not empty, else the default."""
    rule: Rule = item.metadata["rule"]
    for variable in item.metadata["variables"] or (PREFIX + item.name.upper(),):
        text = environ.get(variable, "").strip()
        if not text:
            continue
        try:
            parsed = rule.parse(text)
        except (OSError, TypeError, ValueError):
            raise SettingValueError(_not_allowed(item, text, variable)) from None
        return _check(item, parsed, variable)
    factory: Any = item.default_factory
    return item.default if factory is MISSING else factory()


def _not_allowed(item: Field[Any], value: object, source: str) -> str:
    origin = f" (from the environment variable {source})" if source else ""
    allowed = item.metadata["rule"].allowed
    return f"setting {item.name}: {value!r}{origin} is not allowed; expected {allowed}"


def adopt_variables(prefix: str) -> None:
    """Let variables of another prefix count in this process, where ours are not set."""
    for name, value in dict(os.environ).items():
        if name.startswith(prefix):
            os.environ.setdefault(PREFIX + name.removeprefix(prefix), value)


def child_environment(changes: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process with changes, for a child process."""
    return {**os.environ, **changes}


def _default_cache_dir(environ: Mapping[str, str]) -> str:
    root = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(root) / "tilesmith")
