"""Checks a Config against a kernel and writes it out in full.

Strict: every key and value is checked, and what is wrong is said with its place and a remedy. What
is known but without effect here (keys of another target, options of a loop that does not exist
under this ``pid_type``) is reset, so that two Configs that make the same code become equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, cast

from tilesmith.diagnostics.errors import (
    BarrierRequiresPersistent,
    InvalidConfig,
    InvalidConfigKeys,
    InvalidConfigLength,
    InvalidConfigValue,
    MissingBlockSizes,
    UnsupportedConfigKeys,
)
from tilesmith.schedule.pid_types import is_persistent
from tilesmith.schedule.space.fragments import Fragment, is_int
from tilesmith.schedule.space.keys import (
    KEYS,
    KEYS_BY_NAME,
    PLURALS,
    PORTABLE_KEYS,
    applies_to,
    is_foreign,
)
from tilesmith.schedule.space.slots import Slot
from tilesmith.targets import Target

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
    values: Mapping[str, Any], target: Target, tunables: Mapping[str, Fragment]
) -> dict[str, Any]:
    """Drop keys that have no effect on this target; refuse keys that nobody knows."""
    known = {*KEYS_BY_NAME, *PORTABLE_KEYS, *tunables}
    foreign = sorted(name for name in values if is_foreign(name) and name not in tunables)
    if foreign:
        raise UnsupportedConfigKeys(backend="triton" if target.is_gpu else "cpu", keys=foreign)
    unknown = sorted(name for name in values if name not in known)
    if unknown:
        _raise_unknown(unknown, sorted({*known, *PLURALS}))
    return {
        name: value
        for name, value in values.items()
        if name not in PORTABLE_KEYS and applies_to(name, target)
    }


def _raise_unknown(unknown: list[str], known: list[str]) -> None:
    near = [match for name in unknown for match in get_close_matches(name, known, n=1)]
    if near:
        raise InvalidConfigKeys(keys=unknown, suggestions=" or ".join(dict.fromkeys(near)))
    raise InvalidConfigKeys(
        keys=unknown, fix=f"known keys are {', '.join(known)}; other keys need hl.register_tunable"
    )


def check_value(key: str, slot: Slot, value: Any) -> Any:
    """The value, if the slot takes it."""
    if not slot.valid.contains(value):
        near = _find_near(slot, value)
        raise InvalidConfigValue(
            key=key,
            value=repr(value),
            allowed=slot.valid.expects,
            fix=f"did you mean {near!r}?" if near else "",
        )
    return value


def _find_near(slot: Slot, value: Any) -> str | None:
    choices = [str(choice) for choice in getattr(slot.valid, "choices", ()) if choice]
    matches = get_close_matches(value, choices, n=1, cutoff=0.5) if isinstance(value, str) else []
    return matches[0] if matches else None


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


def check_pid_type(value: str, reasons: Mapping[str, str], default: str) -> None:
    """Raise if the kernel cannot run with this numbering of programs."""
    if value not in reasons:
        return
    if "hl.barrier" in reasons[value]:
        raise BarrierRequiresPersistent(pid_type=value)
    raise InvalidConfig(
        problem=f"pid_type={value!r} cannot be used: {reasons[value]}",
        fix=f"use pid_type={default!r}, or leave pid_type out",
    )


def check_combinations(values: Mapping[str, Any], target: Target) -> None:
    """Raise if values that are right by themselves do not go together."""
    if not is_persistent(values["pid_type"]):
        _check_persistent_only(values)
    if values["pid_type"] == "xyz" and values.get("xcd_remap"):
        raise InvalidConfig(
            problem="xcd_remap=True with pid_type='xyz'",
            expected="xcd_remap renumbers programs along one launch axis",
            fix="leave out xcd_remap, or use pid_type='flat'",
        )
    if values["pid_type"] == "xyz" and any(values.get("flatten_loops") or []):
        raise InvalidConfig(
            problem=f"flatten_loops={values['flatten_loops']} with pid_type='xyz'",
            expected="xyz needs one launch axis for each axis of the loop",
            fix="leave out flatten_loops, or use pid_type='flat'",
        )
    _check_registers(values, target)


def _check_persistent_only(values: Mapping[str, Any]) -> None:
    """Raise if options of persistent programs are combined with others."""
    for key in ("num_sm_multiplier", "maxnreg"):
        default = KEYS_BY_NAME[key].default
        if values.get(key, default) != default:
            raise InvalidConfig(
                problem=f"{key}={values[key]} with pid_type={values['pid_type']!r}",
                expected=f"{key} is for persistent programs only",
                fix=f'leave out {key}, or use pid_type="persistent_blocked"',
            )


def _check_registers(values: Mapping[str, Any], target: Target) -> None:
    """Raise if ``maxnreg`` asks for more registers than a multiprocessor has."""
    if exceeds_registers(values, target):
        limit, warps = values["maxnreg"], values["num_warps"]
        raise InvalidConfig(
            problem=f"maxnreg={limit} with num_warps={warps}",
            expected="at most 65536 registers per program: maxnreg * num_warps * 32",
            found=str(limit * warps * target.warp_size),
            fix="lower maxnreg or num_warps",
        )


def exceeds_registers(values: Mapping[str, Any], target: Target) -> bool:
    """Whether all threads together would ask for more registers than there are."""
    limit = values.get("maxnreg")
    return bool(limit) and limit * values["num_warps"] * target.warp_size > 65536


def round_chunk(chunk: int | None, extent: int | None) -> int | None:
    """A chunk of at least 8; None (the whole row) when one chunk covers it."""
    if chunk is None or not is_int(chunk):
        return None
    chunk = max(8, chunk)
    return None if extent is not None and chunk >= extent else chunk


def in_order(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values in the order of the key table, tunables last, without empty lists and None."""
    known = [key.name for key in KEYS if key.name in values]
    rest = sorted(name for name in values if name not in KEYS_BY_NAME)
    return {
        name: values[name]
        for name in [*known, *rest]
        if values[name] is not None and values[name] != []
    }
