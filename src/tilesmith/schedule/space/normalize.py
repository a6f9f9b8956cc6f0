"""Checks a Config against a kernel and writes it out in full.

Strict: every key and value is checked, and what is wrong is said with its place and a remedy. What
is known but without effect here (keys of another target, options of a loop that does not exist
under this ``pid_type``) is reset, so that two Configs that make the same code become equal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, cast

from tilesmith.exc import (
    BarrierRequiresPersistent,
    InvalidConfig,
    InvalidConfigKeys,
    InvalidConfigLength,
    InvalidConfigValue,
    MissingBlockSizes,
    UnsupportedConfigKeys,
)
from tilesmith.schedule.space.keys import (
    KEYS,
    KEYS_BY_NAME,
    PLURALS,
    PORTABLE_KEYS,
    is_foreign,
)
from tilesmith.schedule.space.slots import Slot

HINT_LISTS = (
    "indexing",
    "atomic_indexing",
    "load_eviction_policies",
    "load_cache_modifiers",
    "store_cache_modifiers",
)
"""Lists with one entry per access. Configs tuned elsewhere also count the accesses of code variants
that are not emitted; surplus entries say nothing about this kernel and are dropped."""


def spell_out(values: Mapping[str, Any], num_reductions: int) -> dict[str, Any]:
    """Replace singular spellings by lists, and flags that stand for numbers."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        plural = PLURALS.get(name)
        if name == "epilogue_subtile" and isinstance(value, (bool, int)):
            result[name] = 2 if value is True else value or None
            continue
        if plural is None:
            result[name] = value
            continue
        if plural in values:
            raise InvalidConfig(
                problem=f"both {name} and {plural} are given", fix=f"leave out {name}"
            )
        result[plural] = [value] * (num_reductions if name == "reduction_loop" else 1)
    return result


def keep_known(
    values: Mapping[str, Any], backend: str, effective: Collection[str]
) -> dict[str, Any]:
    """Keep the effective keys, drop those without effect here, refuse those that nobody knows."""
    known = {*KEYS_BY_NAME, *PORTABLE_KEYS, *effective}
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


def check_value(key: str, slot: Slot, value: Any) -> Any:
    """The value, if the slot takes it."""
    if not slot.valid.contains(value):
        choices = [str(choice) for choice in getattr(slot.valid, "choices", ()) if choice]
        is_text = isinstance(value, str)
        near = get_close_matches(value, choices, n=1, cutoff=0.5) if is_text else []
        fix = f"did you mean {near[0]!r}?" if near else ""
        raise InvalidConfigValue(key=key, value=repr(value), allowed=slot.valid.expects, fix=fix)
    if not slot.unusable or value not in slot.unusable:
        return value
    reason = slot.unusable[value]
    if "hl.barrier" in reason:
        raise BarrierRequiresPersistent(pid_type=value)
    raise InvalidConfig(
        problem=f"{key}={value!r} cannot be used: {reason}",
        fix=f"use {key}={slot.default!r}, or leave {key} out",
    )


def check_list(key: str, slots: tuple[Slot, ...], value: Any) -> list[Any]:
    """The list filled up with defaults, every entry checked."""
    if isinstance(value, str) and key in ("indexing", "atomic_indexing"):
        value = [value] * max(1, len(slots))
    if not isinstance(value, (list, tuple)):
        entries = "entry" if len(slots) == 1 else "entries"
        raise InvalidConfigValue(
            key=key, value=repr(value), allowed=f"a list of {len(slots)} {entries}"
        )
    items = list(cast("list[Any]", value))
    if key == "block_sizes" and len(items) < len(slots):
        raise MissingBlockSizes(
            given=len(items), needed=len(slots), slots=[slot.label for slot in slots]
        )
    _check_surplus(key, slots, items)
    checked = [
        check_value(f"{key}[{i}] ({slot.label})", slot, item)
        for i, (slot, item) in enumerate(zip(slots, items))
    ]
    return checked + [slot.default for slot in slots[len(items) :]]


def _check_surplus(key: str, slots: tuple[Slot, ...], items: list[Any]) -> None:
    surplus = items[len(slots) :]
    if key in HINT_LISTS or all(_is_neutral(key, item) for item in surplus):
        return
    labels = [slot.label for slot in slots] or "nothing: this kernel has no such entries"
    raise InvalidConfigLength(
        key=key,
        given=len(items),
        needed=len(slots),
        slots=labels,
        fix=f"leave out {key}" if not slots else f"keep the first {len(slots)} entries",
    )


def _is_neutral(key: str, item: Any) -> bool:
    """Whether a surplus entry asks for nothing."""
    if key == "block_sizes":
        return False
    if key == "loop_orders":
        return isinstance(item, list) and item == sorted(cast("list[int]", item))
    return item in ((1,) if key == "l2_groupings" else (None, False, 0, ""))


def in_order(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values in the order of the key table, tunables last, without empty lists and None."""
    known = [key.name for key in KEYS if key.name in values]
    rest = sorted(name for name in values if name not in KEYS_BY_NAME)
    return {
        name: values[name]
        for name in [*known, *rest]
        if values[name] is not None and values[name] != []
    }
