"""The built-in keys of a Config: spelling, kind and default.

A Config is portable: every backend knows all keys, and drops those without effect there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
