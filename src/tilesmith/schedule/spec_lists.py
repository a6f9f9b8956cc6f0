"""The lists of a ConfigSpec by the names of the config keys, for those who read them.

``spec.block_sizes[0].max_size``, ``len(spec.reduction_loops)``, ``spec.flatten_loops``: what each
key is about, one item per entry. A key that has no effect on a target has an empty list there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Generic, NoReturn, TypeVar, overload

from typing_extensions import Self

from tilesmith.schedule.config import KEYS_BY_NAME, PLURALS, PORTABLE_KEYS, STRUCTURE
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.space.fragments import EnumFragment, Fragment, ListOf
from tilesmith.schedule.space.slots import Entries, Slot

Items_co = TypeVar("Items_co", covariant=True)


@dataclass(frozen=True)
class SizeItem:
    """One entry of ``block_sizes`` or ``reduction_loops``: a tile axis, or a reduced row."""

    name: str
    size_hint: int
    """Elements along the axis; of a runtime size, those at trace time."""
    min_size: int
    max_size: int
    fragment: Fragment
    """The sizes that a search tries."""


def _slots(spec: SpecLists, key: str) -> tuple[Slot, ...]:
    return tuple(spec.lists.get(key, ()))


def _fragments(spec: SpecLists, key: str) -> ListOf:
    slots = _slots(spec, key)
    return ListOf(slots[0].valid if slots else EnumFragment(("",)), len(slots))


class _OfKey(Generic[Items_co]):
    """What a specification says about the key that the attribute is named after."""

    def __init__(self, read: Callable[[SpecLists, str], Items_co], doc: str) -> None:
        self._read, self.__doc__ = read, doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = name

    @overload
    def __get__(self, spec: None, owner: type) -> Self: ...
    @overload
    def __get__(self, spec: SpecLists, owner: type) -> Items_co: ...
    def __get__(self, spec: SpecLists | None, owner: type) -> Self | Items_co:
        return self if spec is None else self._read(spec, self._key)

    def __set__(self, spec: SpecLists, value: object) -> NoReturn:
        raise AttributeError(f"{self._key} is what a kernel has; a Config chooses")


class SpecLists:
    """What a ConfigSpec says about each key; made of its slots alone."""

    lists: Mapping[str, tuple[Slot, ...]]
    scalars: Mapping[str, Slot]
    tunables: dict[str, Fragment]
    outline: FunctionOutline
    entries: Entries

    @property
    def block_sizes(self) -> tuple[SizeItem, ...]:
        """The tile axes whose sizes a Config gives, in its order."""
        outline = self.outline
        blocks = [outline.function.block(name) for name in self.entries.blocks]
        axes = [axis for loop in outline.all_loops for axis in outline.axes_of(loop)]
        items: list[SizeItem] = []
        for block, slot in zip(blocks, self.lists["block_sizes"]):
            most = block.high or getattr(slot.search, "high", 1)
            ranges = [axis.extent or 0 for axis in axes if axis.block == block.name]
            hint = max(ranges, default=0) or block.extent or most
            items.append(SizeItem(block.name, hint, block.low, most, slot.search))
        return tuple(items)

    @property
    def reduction_loops(self) -> tuple[SizeItem, ...]:
        """The rows that may be reduced chunk by chunk."""
        function = self.outline.function
        rolled = self.entries.rolled
        hints = [prod(function.hint(factor) for factor in dim.factors) for dim in rolled]
        pairs = zip(hints, self.lists["reduction_loops"])
        return tuple(SizeItem(slot.label, hint, 1, hint, slot.search) for hint, slot in pairs)

    loop_orders = _OfKey(_slots, "Loops of several axes.")
    flatten_loops = _OfKey(_slots, "Grids whose axes may be merged into one.")
    l2_groupings = _OfKey(_slots, "Grids of several axes.")
    static_ranges = _OfKey(_slots, "Axes of loops that may be unrolled completely.")
    range_unroll_factors = _OfKey(_slots, "Loops, with the one over programs first.")
    range_warp_specializes = _OfKey(_slots, "Loops that may have warps for loads alone.")
    range_num_stages = _OfKey(_slots, "Loops that may be pipelined.")
    range_multi_buffers = _OfKey(_slots, "Loops, with the one over programs first.")
    range_flattens = _OfKey(_slots, "Loops, with the one over programs first.")

    indexing = _OfKey(_fragments, "How each load and store may find its addresses.")
    atomic_indexing = _OfKey(_fragments, "How each atomic may find its addresses.")
    load_eviction_policies = _OfKey(_fragments, "How each load may be kept in the cache.")
    load_cache_modifiers = _OfKey(_fragments, "Which caches each load may pass by.")
    store_cache_modifiers = _OfKey(_fragments, "Which caches each store may pass by.")

    @property
    def allowed_pid_types(self) -> tuple[str, ...]:
        """The kinds of program ids that this kernel can have."""
        slot = self.scalars.get("pid_type")
        if slot is None or not isinstance(slot.valid, EnumFragment):
            return ()
        return tuple(choice for choice in slot.valid.choices if choice not in slot.unusable)

    @property
    def user_defined_tunables(self) -> dict[str, Fragment]:
        """What ``hl.register_tunable`` has made, by name."""
        return dict(self.tunables)

    def supported_config_keys(self) -> frozenset[str]:
        """Keys that a Config of this kernel may have, with or without effect on this target."""
        known = {*KEYS_BY_NAME, *PLURALS, *PORTABLE_KEYS, STRUCTURE}
        return frozenset({*known, *self.lists, *self.scalars})

    def supports_config_key(self, key: str) -> bool:
        """Whether a Config may have this key."""
        return key in self.supported_config_keys()

    def unsupported_config_keys(self, config: Mapping[str, object]) -> list[str]:
        """The keys of a Config that would be refused."""
        return sorted(key for key in config if not self.supports_config_key(key))

    def is_supported_config(self, config: Mapping[str, object]) -> bool:
        """Whether no key of a Config would be refused."""
        return not self.unsupported_config_keys(config)
