"""The Config that an earlier search chose for such a call, found without loading a tuner.

The key of a call has everything that may change how long it takes: the kernel, its arguments, its
settings, the device, and what compiles it. A winner counts for what was asked for: the best of a
list of Configs, or with some keys fixed, is another winner than the best of all. ``bound`` is
always a BoundKernel, whose module imports this one.
"""

from __future__ import annotations

import ast
import logging
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import cache, lru_cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import tilesmith.exc as errors
import tilesmith.schedule
from tilesmith.diagnostics.kernel_warnings import StoredConfigUnusable
from tilesmith.diagnostics.location import UNKNOWN
from tilesmith.diagnostics.logs import topic_log
from tilesmith.diagnostics.wording import ms_text
from tilesmith.ir.printer import print_function
from tilesmith.runtime.device import describe_device
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings
from tilesmith.store.config_text import SearchLog, config_text, stored_text
from tilesmith.store.key import StoreKey, digest_text, join_keys
from tilesmith.store.winners import Winner, Winners
from tilesmith.version import __version__

CODE_SETTINGS = (
    "backend", "num_threads", "static_shapes", "index_dtype", "dot_precision", "fast_math",
    "persistent_reserved_sms", "allow_warp_specialize",
)  # fmt: skip
"""Settings that change generated code or how it is launched."""
PACKAGES = ("torch", "triton", "llvmlite")
MAX_SHOWN = 6
"""Items of a list that people are shown."""
COMPILING_FOLDERS = ("ir", "analysis", "passes", "schedule", "frontend", "backends", "compiler")
"""Where a change may change generated code, or what a Config means."""


def make_key(bound: Any, args: Sequence[Any], regime: str = "cold") -> StoreKey:
    """The key of a bound kernel with arguments, as of now."""
    definition, facts = bound.definition, bound.facts
    plain = copy(definition.split.source.tree)
    plain.decorator_list = []
    # Without the comments that say where operations stand in the user's file.
    program = re.sub(r'  // [^"\n]*$', "", print_function(bound.function), flags=re.MULTILINE)
    return StoreKey(
        kernel=definition.name,
        source=digest_text(ast.unparse(plain)),
        program=digest_text(program),
        facts=facts.fingerprint(),
        shapes=facts.shape_class(),
        arguments=describe_arguments(definition.parameters, args),
        settings=" ".join(f"{name}={getattr(definition.settings, name)}" for name in CODE_SETTINGS),
        target=str(bound.target),
        device=describe_device(bound.target),
        regime=regime,
        toolchain=toolchain(),
    )


def describe_arguments(
    parameters: Sequence[str], args: Sequence[Any], *, with_values: bool = False
) -> str:
    """The arguments of a call by name: types and shapes; numbers by their type.

    They may differ from call to call. For people, ``with_values``: numbers, and of long lists less.
    """
    texts = (_describe(value, with_values=with_values) for value in args)
    return ", ".join(f"{name}: {text}" for name, text in zip(parameters, texts))


def _describe(value: Any, *, with_values: bool) -> str:
    if hasattr(value, "dtype") and hasattr(value, "stride"):
        dtype = str(value.dtype).removeprefix("torch.")
        told = f"{' with' if with_values else ''} strides {list(value.stride())}"
        return f"{dtype}{list(value.shape)}{'' if value.is_contiguous() else told}"
    if isinstance(value, (list, tuple)):
        shown = cast("Sequence[Any]", value)[: MAX_SHOWN if with_values else None]
        more = ["…"] if len(shown) < len(value) else []
        listed = [_describe(item, with_values=with_values) for item in shown]
        return f"[{', '.join(listed + more)}]"
    if value is None or isinstance(value, (bool, str)) or (with_values and not callable(value)):
        return repr(value)
    return getattr(value, "__name__", type(value).__name__)


@lru_cache(maxsize=1)
def toolchain() -> tuple[tuple[str, str], ...]:
    """Names and versions. Torch's version names its CUDA or HIP, too: ``2.11.0+cu128``."""
    installed = installed_versions(("tilesmith", *PACKAGES))
    own = f"{installed.pop('tilesmith', 'source')}+{_digest_sources()}"
    return (("tilesmith", own), *installed.items(), ("machine", platform.machine()))


def installed_versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions by package; those that are not installed are left out."""
    found: dict[str, str] = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = __version__ if package == "tilesmith" else version(package)
    return found


def _digest_sources() -> str:
    root = Path(tilesmith.schedule.__file__).parent.parent
    files = sorted(file for folder in COMPILING_FOLDERS for file in (root / folder).rglob("*.py"))
    digest = sha256()
    for file in files:
        digest.update(file.relative_to(root).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:8]


CACHE = topic_log("cache")


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


def usable_config(bound: Any, winner: Winner | None, key: Callable[[], StoreKey]) -> Config | None:
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


def search_overrides(settings: Settings) -> dict[str, object]:
    """What every candidate of a search has."""
    forced = {"pid_type": "persistent_blocked"} if settings.autotune_force_persistent else {}
    return {**forced, **settings.autotune_config_overrides}


def find_stored_config(
    bound: Any, args: Sequence[Any], configs: Sequence[Config] = ()
) -> Config | None:
    """What a first call takes instead of its default, and a line in the log; None: nothing stored.

    ``configs`` are those of the decorator.
    """
    name, settings = bound.definition.name, bound.definition.settings
    key = _key_of_winner(bound, args, configs)
    winners = Winners(settings.cache_dir, settings.team_cache)
    winner = None if settings.skip_cache else find_winner(winners, name, key)
    found = "no winner of a search" if winner is None else f"a winner, {winner.median_ms:.4g} ms"
    CACHE.info("%s: %s in %s", name, found, "use" if settings.skip_cache else settings.cache_dir)
    config = usable_config(bound, winner, key)
    if config is not None and winner is not None:
        log = SearchLog(settings.autotune_log_level)
        log.write(logging.INFO, 0.0, stored_text(name, config, winner.median_ms))
    return config


def _key_of_winner(bound: Any, args: Any, configs: Sequence[Config]) -> Callable[[], StoreKey]:
    settings = bound.definition.settings
    # A list of several Configs restricts what is taken, a single one does not.
    scope = configs if len(configs) > 1 else (), search_overrides(settings), settings.deterministic
    return cache(lambda: winner_key(make_key(bound, args), *scope))


def stored_winner(bound: Any, args: Sequence[Any]) -> Winner | None:
    """What is stored for a call of a bound kernel, by this toolchain or another."""
    winners = Winners(bound.settings.cache_dir, bound.settings.team_cache)
    has_none = bound.settings.skip_cache or not winners.has_any(bound.definition.name)
    return None if has_none else winners.lookup(_key_of_winner(bound, args, bound.configs)())


def stored_lines(bound: Any, args: Sequence[Any]) -> list[str]:
    """What is stored for a call of a bound kernel, where it came from and what it is used for."""
    if (winner := stored_winner(bound, args)) is None:
        return []
    use = "a search starts from it (other versions found it)" if winner.is_stale else "used"
    text = f"found      {winner.time}, {ms_text(winner.median_ms)}; {winner.note}; {use}"
    lines = [f"stored     {config_text(winner.config)}", text]
    # Without what a terminal would obey: entries may come from anywhere.
    return ["".join(c if c.isprintable() else "?" for c in line) for line in lines]
