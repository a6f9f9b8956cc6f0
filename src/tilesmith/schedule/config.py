"""Config: one choice of schedule, an immutable mapping from keys to values, and the known keys.

A Config is portable: every backend knows all keys of ``KEYS``, and drops those without effect
there. A key that nobody knows is refused. Values are not checked here: a kernel's ``ConfigSpec``
checks a Config against the kernel.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar, cast, overload

from typing_extensions import Self, Unpack, override

from tilesmith.disk.writing import replace_file
from tilesmith.exc import (
    InvalidConfig,
    InvalidConfigValue,
    UnsupportedConfigKeys,
)
from tilesmith.keywords import ConfigKeywords
from tilesmith.schedule.given_values import unknown_keys, values_of, values_of_file, values_of_text


@dataclass(frozen=True)
class Key:
    """One built-in key. ``default`` is what a Config without the key stands for."""

    name: str
    default: Any = None
    singular: str = ""
    """The accepted spelling for one value, which stands for a list of it."""
    is_list: bool = False
    neutral: Any = None
    """Of a list: the entry that asks for nothing. (For the order of a loop its axes say which.)"""


def _list(name: str, singular: str = "", neutral: Any = None) -> Key:
    return Key(name, (), singular, is_list=True, neutral=neutral)


KEYS = (
    _list("block_sizes", "block_size"),
    _list("loop_orders", "loop_order"),
    _list("flatten_loops", "flatten_loop", False),
    _list("l2_groupings", "l2_grouping", 1),
    _list("reduction_loops", "reduction_loop"),
    _list("range_unroll_factors", "range_unroll_factor", 0),
    _list("range_warp_specializes", "range_warp_specialize"),
    _list("range_num_stages", "range_num_stage", 0),
    _list("range_multi_buffers", "range_multi_buffer"),
    _list("range_flattens", "range_flatten"),
    _list("static_ranges", "static_range", False),
    Key("num_warps", 4),
    Key("num_stages", 1),
    Key("indexing", "pointer", is_list=True, neutral="pointer"),
    Key("atomic_indexing", "pointer", is_list=True, neutral="pointer"),
    Key("pid_type", "flat"),
    Key("num_sm_multiplier", 1),
    _list("load_eviction_policies", neutral=""),
    _list("load_cache_modifiers", neutral=""),
    _list("store_cache_modifiers", neutral=""),
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

RANGE_KEYS = tuple(name for name in KEYS_BY_NAME if name.startswith("range_"))

STRUCTURE = "structure"
"""Which form of the kernel the other keys are about."""

PORTABLE_KEYS = ("advanced_controls_file", "num_ctas", "occupancy")
"""Known to tuned configs from elsewhere, without effect here: accepted and dropped."""

FOREIGN_PREFIXES = ("cute_", "tcgen05_", "pallas_")
FOREIGN_KEYS = ("num_threads",)
"""Keys that only another code generator understands: a config with them is not for this one."""


def is_persistent(pid_type: str) -> bool:
    """Whether each program walks over many tiles."""
    return pid_type.startswith("persistent")


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
        raise unknown_keys(unknown, known, PLURALS)
    return {k: value for k, value in values.items() if k in effective and value is not None}


def in_order(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values in the order of the key table, tunables last, without empty lists and None."""
    known = [key.name for key in KEYS if key.name in values]
    rest = sorted(name for name in values if name not in KEYS_BY_NAME)
    return {
        name: values[name]
        for name in [*known, *rest]
        if values[name] is not None and values[name] != []
    }


Value_co = TypeVar("Value_co", covariant=True)


def package_name() -> str:
    """What the running script calls this package: Helion's name, where it has imported that."""
    known = getattr(sys.modules.get("__main__"), "helion", None)
    return "helion" if getattr(known, "__name__", "") == "tilesmith" else "tilesmith"


class Specification(Protocol):
    """What ``Config.minimize`` needs of a ConfigSpec."""

    def normalize(self, config: Config) -> Config:
        """The same choice with every key in full."""
        ...

    def settle(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values that a Config with only these stands for."""
        ...


class _Pairs(frozenset[tuple[Any, Any]]):
    """The items of a dictionary in a form that can be hashed."""


def _freeze(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(item) for item in cast("list[Any]", value))
    if isinstance(value, Mapping):
        return _Pairs(
            (key, _freeze(item)) for key, item in cast("Mapping[Any, Any]", value).items()
        )
    return frozenset(cast("set[Any]", value)) if isinstance(value, set) else value


def _thaw(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_thaw(item) for item in cast("tuple[Any, ...]", value)]
    if isinstance(value, _Pairs):
        return {key: _thaw(item) for key, item in sorted(value, key=lambda pair: str(pair[0]))}
    return set(value) if type(value) is frozenset else value


class _KeyProperty(Generic[Value_co]):
    """Attribute access to one built-in key, giving its default when the Config does not have it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.__doc__ = f"The value of ``{name}``, or its default."

    @overload
    def __get__(self, config: None, owner: type) -> Self: ...
    @overload
    def __get__(self, config: Config, owner: type) -> Value_co: ...
    def __get__(self, config: Config | None, owner: type) -> Self | Value_co:
        if config is None:
            return self
        if self.name == "block_sizes":
            return cast("Value_co", config[self.name])
        key = KEYS_BY_NAME.get(self.name)
        return cast("Value_co", config.get(self.name, _thaw(key.default) if key else None))


class Config(Mapping[str, Any]):
    """One schedule for a kernel, e.g. ``Config(block_sizes=[64, 64], num_warps=8)``.

    Compared and hashed by content. None counts as not given; unknown keywords are the user's own
    tunables, kept as they are. Lists come out as fresh lists: nobody can change a Config in place.
    """

    __slots__ = ("_values",)
    _values: dict[str, Any]

    block_sizes = _KeyProperty[list[int]]("block_sizes")
    loop_orders = _KeyProperty[list[list[int]]]("loop_orders")
    flatten_loops = _KeyProperty[list[bool]]("flatten_loops")
    l2_groupings = _KeyProperty[list[int]]("l2_groupings")
    reduction_loops = _KeyProperty["list[int | None]"]("reduction_loops")
    range_unroll_factors = _KeyProperty[list[int]]("range_unroll_factors")
    range_warp_specializes = _KeyProperty["list[bool | None]"]("range_warp_specializes")
    range_num_stages = _KeyProperty[list[int]]("range_num_stages")
    range_multi_buffers = _KeyProperty["list[bool | None]"]("range_multi_buffers")
    range_flattens = _KeyProperty["list[bool | None]"]("range_flattens")
    static_ranges = _KeyProperty[list[bool]]("static_ranges")
    num_warps = _KeyProperty[int]("num_warps")
    num_stages = _KeyProperty[int]("num_stages")
    indexing = _KeyProperty["str | list[str]"]("indexing")
    atomic_indexing = _KeyProperty["str | list[str]"]("atomic_indexing")
    pid_type = _KeyProperty[str]("pid_type")
    num_sm_multiplier = _KeyProperty[int]("num_sm_multiplier")
    load_eviction_policies = _KeyProperty[list[str]]("load_eviction_policies")
    load_cache_modifiers = _KeyProperty[list[str]]("load_cache_modifiers")
    store_cache_modifiers = _KeyProperty[list[str]]("store_cache_modifiers")
    waves_per_eu = _KeyProperty[int]("waves_per_eu")
    matrix_instr_nonkdim = _KeyProperty[int]("matrix_instr_nonkdim")
    xcd_remap = _KeyProperty[bool]("xcd_remap")
    maxnreg = _KeyProperty["int | None"]("maxnreg")
    epilogue_subtile = _KeyProperty["int | None"]("epilogue_subtile")
    cpu_threads = _KeyProperty[int]("cpu_threads")
    cpu_unroll = _KeyProperty[int]("cpu_unroll")
    cpu_streaming_stores = _KeyProperty[bool]("cpu_streaming_stores")
    cpu_schedule = _KeyProperty[str]("cpu_schedule")
    advanced_controls_file = _KeyProperty["str | None"]("advanced_controls_file")

    def __init__(self, **values: Unpack[ConfigKeywords]) -> None:
        given = {k: _freeze(v) for k, v in values.items() if v is not None or not is_reserved(k)}
        object.__setattr__(self, "_values", given)

    if not TYPE_CHECKING:  # a type checker would take this for "any attribute may be set"

        def __setattr__(self, name: str, value: object) -> NoReturn:
            raise AttributeError(f"a Config is immutable; use Config(**config, {name}=...) instead")

    @property
    def config(self) -> dict[str, Any]:
        """The keys and values as a fresh dictionary."""
        return {name: _thaw(value) for name, value in self._values.items()}

    @override
    def __getitem__(self, name: str) -> Any:
        return _thaw(self._values[name])

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    @override
    def __len__(self) -> int:
        return len(self._values)

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._values == other._values

    @override
    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    @override
    def __str__(self) -> str:
        """The Config as keyword arguments, sorted by key."""
        arguments = (f"{name}={self[name]!r}" for name in sorted(self._values))
        return f"Config({', '.join(arguments)})"

    @override
    def __repr__(self) -> str:
        """An expression to paste where the package is imported under its name."""
        return f"{package_name()}.{self}"

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return Config.from_dict, (self.config,)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Config:
        """The Config with these keys and values."""
        return Config(**values_of(values))

    def to_json(self) -> str:
        """The Config as JSON text."""
        return json.dumps(self.config, indent=2)

    @staticmethod
    def from_json(text: str) -> Config:
        """Read back what ``to_json`` wrote."""
        return Config(**values_of_text(text))

    def save(self, path: str | Path) -> None:
        """Write the Config as JSON; a reader never sees a half-written file."""
        replace_file(Path(path), self.to_json().encode())

    @staticmethod
    def load(path: str | Path) -> Config:
        """Read a Config that ``save`` wrote."""
        return Config(**values_of_file(path))

    def updated(self, **values: Any) -> Config:
        """The same Config with some values replaced; None removes a key."""
        return Config.from_dict({**self.config, **values})

    def minimize(self, spec: Specification) -> Config:
        """Leave out every key that the kernel's specification would fill in by itself."""
        full = spec.normalize(self)
        needed = {name: full[name] for name in ("block_sizes", STRUCTURE) if name in full}
        defaults = spec.settle(needed)
        kept = {
            name: value
            for name, value in full.items()
            if name in needed or name not in defaults or defaults[name] != value
        }
        return Config.from_dict(kept)
