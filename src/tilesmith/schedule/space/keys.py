"""The built-in keys of a Config: spelling, kind and default; what a user says, by these keys.

A Config is portable: every backend knows all keys, and drops those without effect there. A key that
nobody knows is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, cast

from tilesmith.exc import (
    InvalidConfig,
    InvalidConfigKeys,
    InvalidConfigValue,
    UnsupportedConfigKeys,
)


@dataclass(frozen=True)
class Key:
    """One built-in key. ``default`` is what a Config without the key stands for."""

    name: str
    default: Any = None
    singular: str = ""
    """The accepted spelling for one value, which stands for a list of it."""
    is_list: bool = False


def _list(name: str, singular: str = "") -> Key:
    return Key(name, (), singular, is_list=True)


KEYS = (
    _list("block_sizes", "block_size"),
    _list("loop_orders", "loop_order"),
    _list("flatten_loops", "flatten_loop"),
    _list("l2_groupings", "l2_grouping"),
    _list("reduction_loops", "reduction_loop"),
    _list("range_unroll_factors", "range_unroll_factor"),
    _list("range_warp_specializes", "range_warp_specialize"),
    _list("range_num_stages", "range_num_stage"),
    _list("range_multi_buffers", "range_multi_buffer"),
    _list("range_flattens", "range_flatten"),
    _list("static_ranges", "static_range"),
    Key("num_warps", 4),
    Key("num_stages", 1),
    Key("indexing", "pointer", is_list=True),
    Key("atomic_indexing", "pointer", is_list=True),
    Key("pid_type", "flat"),
    Key("num_sm_multiplier", 1),
    _list("load_eviction_policies"),
    _list("load_cache_modifiers"),
    _list("store_cache_modifiers"),
    Key("waves_per_eu", 0),
    Key("matrix_instr_nonkdim", 0),
    Key("xcd_remap", False),
    Key("maxnreg", None),
    Key("epilogue_subtile", None),
    Key("cpu_threads", 0),
    Key("cpu_unroll", 4),
    Key("cpu_streaming_stores", False),
    Key("cpu_schedule", "static"),
)
"""In the order in which a Config is searched and reported."""

KEYS_BY_NAME = {key.name: key for key in KEYS}
PLURALS = {key.singular: key.name for key in KEYS if key.singular}

RANGE_KEYS = (
    "range_unroll_factors",
    "range_warp_specializes",
    "range_num_stages",
    "range_multi_buffers",
    "range_flattens",
)

STRUCTURE = "structure"
"""Which form of the kernel the other keys are about."""

PORTABLE_KEYS = ("advanced_controls_file", "num_ctas", "occupancy")
"""Known to tuned configs from elsewhere, without effect here: accepted and dropped."""

FOREIGN_PREFIXES = ("cute_", "tcgen05_", "pallas_")
FOREIGN_KEYS = ("num_threads",)
"""Keys that only another code generator understands: a config with them is not for this one."""


def is_foreign(name: str) -> bool:
    """Whether the key belongs to a code generator that we do not have."""
    return name in FOREIGN_KEYS or name.startswith(FOREIGN_PREFIXES)


def is_reserved(name: str) -> bool:
    """Whether a user tunable must not have this name."""
    is_ours = name in KEYS_BY_NAME or name in PLURALS or name == STRUCTURE
    return is_ours or name in PORTABLE_KEYS or is_foreign(name)


def spell_out(values: Mapping[str, Any], num_reductions: int) -> dict[str, Any]:
    """Replace singular spellings by lists, and flags that stand for numbers.

    A singular key takes one entry or the list of all.
    """
    result: dict[str, Any] = {}
    for name, value in values.items():
        plural = PLURALS.get(name)
        if name == "epilogue_subtile" and isinstance(value, (bool, int)):
            result[name] = 2 if value is True else value or None
            continue
        if plural is None:
            result[name] = _ungrouped(value) if name == "block_sizes" else value
            continue
        if plural in values:
            raise InvalidConfig(
                problem=f"both {name} and {plural} are given", fix=f"leave out {name}"
            )
        if _is_whole_list(name, value):
            result[plural] = value
        else:
            result[plural] = [value] * (num_reductions if name == "reduction_loop" else 1)
    return result


def _ungrouped(sizes: Any) -> Any:
    """Sizes may be grouped by loop, as older configs have them: [[32, 64], 16]."""
    if not isinstance(sizes, (list, tuple)):
        return sizes
    result: list[Any] = []
    for item in cast("list[Any]", sizes):
        result.extend(cast("list[Any]", item) if isinstance(item, (list, tuple)) else [item])
    return result


def _is_whole_list(name: str, value: Any) -> bool:
    """Whether a singular key was given all entries; one loop order is a list itself."""
    if not isinstance(value, (list, tuple)):
        return False
    items = cast("list[Any]", value)
    return name != "loop_order" or any(isinstance(item, (list, tuple)) for item in items)


def keep_known(
    values: Mapping[str, Any], backend: str, effective: Collection[str]
) -> dict[str, Any]:
    """Keep the effective keys, drop those without effect here, refuse those that nobody knows."""
    known = {*KEYS_BY_NAME, *PORTABLE_KEYS, *effective}
    controls = values.get("advanced_controls_file")
    if controls is not None and not isinstance(controls, str):
        raise InvalidConfigValue(
            key="advanced_controls_file", value=repr(controls), allowed="a path"
        )
    foreign = sorted(name for name in values if is_foreign(name) and name not in effective)
    if foreign:
        raise UnsupportedConfigKeys(backend=backend, keys=foreign)
    unknown = sorted(name for name in values if name not in known)
    if unknown:
        names = sorted({*known, *PLURALS})
        near = [match for name in unknown for match in get_close_matches(name, names, n=1)]
        if near:
            raise InvalidConfigKeys(keys=unknown, suggestions=" or ".join(dict.fromkeys(near)))
        fix = f"known keys are {', '.join(names)}; other keys need hl.register_tunable"
        raise InvalidConfigKeys(keys=unknown, fix=fix)
    return {name: value for name, value in values.items() if name in effective}


def in_order(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values in the order of the key table, tunables last, without empty lists and None."""
    known = [key.name for key in KEYS if key.name in values]
    rest = sorted(name for name in values if name not in KEYS_BY_NAME)
    return {
        name: values[name]
        for name in [*known, *rest]
        if values[name] is not None and values[name] != []
    }
