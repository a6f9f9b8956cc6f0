"""Every setting of a kernel: a keyword, an environment variable and a default for each.

Keywords win over the environment, the environment over defaults. All is checked and read once, when
the frozen ``Settings`` is made; no other module looks at the environment.
"""

from __future__ import annotations

import copy
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from typing_extensions import Unpack

import tilesmith.setting_rules as rules
from tilesmith.keywords import SettingKeywords
from tilesmith.setting_rules import RefMode

PREFIX = "TILESMITH_"
ADOPTED = "TILESMITH_ADOPTED_PREFIX"
"""Names a second prefix whose variables count; in the environment, so that child processes know."""


class SettingError(Exception):
    """A setting that does not exist, or not with such a value: also a TypeError or ValueError."""


class UnknownSettingError(SettingError, TypeError):
    """A name that no setting has."""


class SettingValueError(SettingError, ValueError):
    """A value that a setting does not take."""


def _setting(default: Any, rule: rules.Rule, *variables: str, is_hashed: bool = True) -> Any:
    """A field with its rule, and its environment variables if they are not named after it."""
    metadata = {"rule": rule, "variables": variables}
    if isinstance(default, (dict, list)):
        return field(default_factory=default.copy, hash=is_hashed, metadata=metadata)
    return field(default=default, hash=is_hashed, metadata=metadata)


@dataclass(frozen=True, init=False)
class Settings:
    """The settings of one kernel.

    Example:
        >>> Settings(static_shapes=False, index_dtype="int64").static_shapes
        False
    """

    backend: str = _setting("auto", rules.BACKEND)
    """Where kernels run; ``auto``: Triton for tensors on a GPU, native code for those on a CPU."""
    num_threads: int = _setting(0, rules.whole(0))
    """Threads of native code; 0: as many as torch uses."""
    check: bool = _setting(False, rules.FLAG)
    """Whether every access is checked for bounds and races, slowly, by the interpreter."""
    verify_passes: bool = _setting(False, rules.FLAG)
    """Whether the IR is verified after every pass; ``check`` does so, too."""
    static_shapes: bool = _setting(True, rules.FLAG)
    """Whether sizes and strides are constants of the compiled kernel."""
    index_dtype: str | None = _setting(None, rules.INDEX_DTYPE)
    """Width of index arithmetic; None: 64 bits exactly where an access needs it."""
    dot_precision: str = _setting(
        "ieee", rules.DOT_PRECISION, "TILESMITH_DOT_PRECISION", "TRITON_F32_DEFAULT"
    )
    """How fp32 operands are multiplied in dots."""
    fast_math: bool = _setting(False, rules.FLAG)
    """Whether exp, division and the like may be approximate."""
    ignore_warnings: tuple[str | type, ...] = _setting((), rules.WARNINGS)
    """Warnings that are not printed."""
    missing_gradient: str = _setting("derive", rules.GRADIENTS)
    """What to do where an argument requires a gradient and the kernel has no backward."""
    persistent_reserved_sms: int = _setting(0, rules.whole(0))
    """Multiprocessors that persistent kernels leave free."""
    distributed: bool = _setting(False, rules.FLAG)
    allow_warp_specialize: bool = _setting(True, rules.FLAG)
    triton_do_not_specialize: bool = _setting(False, rules.FLAG)
    """Whether Triton's code is the same for all integers: 1 and multiples of 16 are as others."""
    debug_dtype_asserts: bool = _setting(False, rules.FLAG)
    """As ``verify_passes``: the types of all values are compared with what their ops give."""
    print_output_code: bool = _setting(False, rules.FLAG)
    print_repro: bool = _setting(False, rules.FLAG)
    """Whether a first call writes a file that repeats it, and prints the path."""
    output_origin_lines: bool = _setting(True, rules.FLAG)
    ref_mode: RefMode = _setting(RefMode.OFF, rules.REF_MODE, "TILESMITH_INTERPRET")
    triton_interpret: bool = _setting(False, rules.FLAG, "TRITON_INTERPRET")
    torch_compile_fusion: bool = _setting(False, rules.FLAG)

    cache_dir: str = _setting("", rules.PATH)
    """Where compiled kernels and tuned configs are kept."""
    team_cache: str = _setting("", rules.TEXT)
    """A folder or URL with configs and measurements that a team shares, under the local cache."""
    skip_cache: bool = _setting(False, rules.FLAG)
    assert_cache_hit: bool = _setting(False, rules.FLAG)
    logs: str = _setting("", rules.LOGS)
    """What is logged to stderr, by topic: ``config,+cache`` (docs/logs.md)."""

    force_autotune: bool = _setting(False, rules.FLAG)
    disallow_autotuning: bool = _setting(False, rules.FLAG)
    autotune_effort: str = _setting("none", rules.EFFORT)
    """How long to search at a first call: 0, 15 or 120 seconds."""
    autotuner: str = _setting("ModelFirstSearch", rules.TEXT)
    """The search method."""
    deterministic: bool = _setting(False, rules.FLAG)
    """Whether results must be equal bit for bit, run after run: no schedule may depend on the order
    of programs, neither the default nor what tuning accepts."""
    autotuner_fn: Callable[..., object] | None = _setting(None, rules.CALLABLE)
    autotune_cache: str = _setting("LocalAutotuneCache", rules.CACHE)
    autotune_force_persistent: bool = _setting(False, rules.FLAG)
    """Whether searches try persistent program ids only."""
    autotune_log_level: int = _setting(logging.INFO, rules.LOG_LEVEL)
    autotune_log: str | None = _setting(None, rules.PATH)
    autotune_log_details: bool = _setting(False, rules.FLAG)
    """Whether a search says so where no file gets its details: ``autotune_log`` names one."""
    autotune_compile_timeout: int = _setting(60, rules.whole(1))
    autotune_adaptive_timeout: bool = _setting(False, rules.FLAG)
    autotune_precompile: str | None = _setting("fork", rules.PRECOMPILE)
    autotune_precompile_jobs: int | None = _setting(None, rules.whole(1, optional=True))
    autotune_benchmark_subprocess: bool = _setting(True, rules.FLAG)
    autotune_benchmark_timeout: int = _setting(30, rules.whole(1))
    autotune_random_seed: int | None = _setting(None, rules.whole(0, optional=True))
    autotune_best_of_k: int = _setting(1, rules.whole(1))
    """How many searches there are, each with random numbers of its own; the best winner counts."""
    autotune_accuracy_check: bool = _setting(True, rules.FLAG)
    autotune_baseline_fn: Callable[..., object] | None = _setting(None, rules.CALLABLE)
    autotune_baseline_atol: float | None = _setting(None, rules.NUMBER)
    autotune_baseline_rtol: float | None = _setting(None, rules.NUMBER)
    autotune_baseline_accuracy_check_fn: Callable[..., object] | None = _setting(
        None, rules.CALLABLE
    )
    autotune_rebenchmark_threshold: float | None = _setting(
        None, rules.NUMBER, "TILESMITH_REBENCHMARK_THRESHOLD"
    )
    autotune_suspicious_rebenchmark_ratio: float | None = _setting(None, rules.NUMBER)
    autotune_search_acf: list[str] = _setting([], rules.PATHS, is_hashed=False)
    autotune_progress_bar: bool = _setting(True, rules.FLAG)
    autotune_max_generations: int | None = _setting(None, rules.whole(0, optional=True))
    autotune_budget_seconds: float | None = _setting(None, rules.NUMBER)
    autotune_stop_at_roofline: float | None = _setting(None, rules.NUMBER)
    """End a search when the best reaches this share of the roofline, e.g. 0.95."""
    autotune_ignore_errors: bool = _setting(False, rules.FLAG)
    autotune_config_overrides: Mapping[str, object] = _setting({}, rules.MAPPING, is_hashed=False)
    autotune_seed_configs: object = _setting(None, rules.CONFIGS, is_hashed=False)
    disable_autotuner_heuristics: bool = _setting(False, rules.FLAG)
    """Whether defaults and searches do without heuristics and the device model."""
    autotune_config_filter: Callable[..., object] | None = _setting(None, rules.CALLABLE)
    autotune_benchmark_fn: Callable[..., object] | None = _setting(None, rules.CALLABLE)
    autotune_best_available_max_configs: int = _setting(
        20, rules.whole(0), "TILESMITH_BEST_AVAILABLE_MAX_CONFIGS"
    )
    autotune_best_available_max_cache_scan: int = _setting(
        500, rules.whole(0), "TILESMITH_BEST_AVAILABLE_MAX_CACHE_SCAN"
    )
    autotune_initial_population_strategy: object = _setting(
        None, rules.ANYTHING, "TILESMITH_AUTOTUNER_INITIAL_POPULATION", is_hashed=False
    )
    autotune_with_torch_compile_fusion: bool = _setting(False, rules.FLAG)
    autotune_log_search_space: bool = _setting(False, rules.FLAG)
    """Whether a search ends with what it chose from, and how much of that was tried."""
    autotune_log_search_space_verbose: bool = _setting(False, rules.FLAG)
    """Whether the choices themselves are listed, too."""
    autotune_log_search_space_path: str | None = _setting(None, rules.PATH)
    """A folder that gets the same as JSON, a file for each search."""

    def __init__(self, **values: Unpack[SettingKeywords]) -> None:
        environ = _environment()
        _name_unknown(tuple(unknown_variables(os.environ)))
        self._fill(values, environ)

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
                hint = rules.nearest(name, list(known))
                raise UnknownSettingError(f"unknown setting {name!r}; {hint}")
        for name, item in known.items():
            value = _check(item, values[name]) if name in values else _read(item, environ)
            object.__setattr__(self, name, value)
        if not self.cache_dir:
            object.__setattr__(self, "cache_dir", _default_cache_dir(environ))

    def to_dict(self) -> dict[str, Any]:
        """All settings by name, as shallow copies."""
        return {item.name: copy.copy(getattr(self, item.name)) for item in fields(self)}


def _check(item: Field[Any], value: object, source: str = "") -> object:
    rule: rules.Rule = item.metadata["rule"]
    try:
        accepted = rule.accept(value)
    except (AttributeError, TypeError, ValueError) as error:
        reason = _not_allowed(item, value, source)
        hint = f" ({error})" if isinstance(error, rules.NameNotKnownError) else ""
        raise SettingValueError(reason + hint) from None
    return _unless_refused(item, accepted, source)


def _unless_refused(item: Field[Any], value: object, source: str) -> object:
    """Raise for a value that means nothing here; one that could only be faster is told of.

    That one stays to be read back by who set it: nothing else reads it.
    """
    reason = _refusal(item, value, source)
    if not reason or (item.name in rules.AT_BIND and not source):
        return value
    if item.name in (*rules.AT_BIND, *rules.ESSENTIAL):
        raise SettingValueError(reason)
    _warn(reason)
    return value


def _refusal(item: Field[Any], value: object, source: str = "") -> str:
    """Why a value means nothing here; empty for one that does."""
    why = rules.REFUSED.get(item.name)
    default = _default(item)
    if why is None or value in (default, *rules.AS_DEFAULT.get(item.name, ())):
        return ""
    shown = getattr(value, "__name__", repr(value))
    given = f"setting {item.name}: {shown}{_origin(source)}"
    return f"{given} is not supported, only {default!r}: {why}"


def refuse_at_bind(settings: Settings) -> None:
    """Raise for what only a kernel that runs would have to do."""
    for item in fields(settings):
        reason = _refusal(item, getattr(settings, item.name))
        if reason and item.name in rules.AT_BIND:
            raise SettingValueError(reason)


def _default(item: Field[Any]) -> object:
    factory: Any = item.default_factory
    return item.default if factory is MISSING else factory()


def _read(item: Field[Any], environ: Mapping[str, str]) -> object:
    """The value from the first variable that is set and not empty, else the default."""
    rule: rules.Rule = item.metadata["rule"]
    for variable in _variables(item):
        text = environ.get(variable, "").strip()
        if not text:
            continue
        try:
            parsed = rule.parse(text)
        except (OSError, TypeError, ValueError):
            raise SettingValueError(_not_allowed(item, text, variable)) from None
        return _check(item, parsed, variable)
    return _default(item)


def _not_allowed(item: Field[Any], value: object, source: str) -> str:
    allowed = item.metadata["rule"].allowed
    return f"setting {item.name}: {value!r}{_origin(source)} is not allowed; expected {allowed}"


def _origin(source: str) -> str:
    # A variable of the adopted prefix counts under ours.
    adopted = source.replace(PREFIX, os.environ.get(ADOPTED, PREFIX), 1)
    name = adopted if source not in os.environ and adopted in os.environ else source
    return f" (from the environment variable {name})" if source else ""


def _variables(item: Field[Any]) -> tuple[str, ...]:
    return item.metadata["variables"] or (PREFIX + item.name.upper(),)


@cache
def known_variables() -> tuple[str, ...]:
    """The names of all environment variables that settings are read from."""
    return tuple(variable for item in fields(Settings) for variable in _variables(item))


def unknown_variables(names: Iterable[str], prefix: str = PREFIX) -> list[str]:
    """The variables of that prefix that no setting is read from, in order."""
    ours = [name for name in names if name.startswith(prefix) and name != ADOPTED]
    return sorted(n for n in ours if PREFIX + n.removeprefix(prefix) not in known_variables())


@cache  # each set of names is told of once
def _name_unknown(names: tuple[str, ...], prefix: str = PREFIX) -> None:
    known = [v.removeprefix(PREFIX) for v in known_variables() if v.startswith(PREFIX)]
    for name in names:
        near = get_close_matches(name.removeprefix(prefix), known, n=1)
        hint = f"did you mean {prefix}{near[0]}?" if near else "no setting is read from it"
        _warn(f"environment variable {name} is not known; {hint}")


@cache  # once
def _warn(text: str) -> None:
    # A program runs also where nobody reads: stderr may be closed, full or None.
    with suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(f"WARNING: {text}\n")


def adopt_variables(prefix: str) -> None:
    """Let variables of another prefix count from now on, where ours are not set.

    They are looked up when settings are made: a script may set them after this call.
    """
    os.environ[ADOPTED] = prefix


def _environment() -> Mapping[str, str]:
    """The environment, with variables of an adopted prefix under our names."""
    prefix = os.environ.get(ADOPTED)
    if not prefix:
        return os.environ
    unknown = unknown_variables(os.environ, prefix)
    _name_unknown(tuple(unknown), prefix)
    theirs = [name for name in os.environ if name.startswith(prefix) and name not in unknown]
    return {**{PREFIX + n.removeprefix(prefix): os.environ[n] for n in theirs}, **os.environ}


def child_environment(changes: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process with changes, for a child process."""
    return {**os.environ, **changes}


def ray_address() -> str:
    """Where Ray's own variable says that its cluster is; empty: nowhere."""
    return os.environ.get("RAY_ADDRESS", "").strip()


def _default_cache_dir(environ: Mapping[str, str]) -> str:
    root = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(root) / "tilesmith")
