"""The lists of a ConfigSpec by the names of the config keys, for those who read them.

``spec.block_sizes[0].max_size``, ``len(spec.reduction_loops)``, ``spec.flatten_loops``: what each
key is about, one item per entry. A key that has no effect on a target has an empty list there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tilesmith.schedule.config import KEYS_BY_NAME, PLURALS, PORTABLE_KEYS, STRUCTURE
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.space.fragments import EnumFragment, Fragment, ListOf
from tilesmith.schedule.space.slots import Entries, Slot


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

    def _slots(self, key: str) -> tuple[Slot, ...]:
        return tuple(self.lists.get(key, ()))

    @property
    def loop_orders(self) -> tuple[Slot, ...]:
        """Loops of several axes."""
        return self._slots("loop_orders")

    @property
    def flatten_loops(self) -> tuple[Slot, ...]:
        """Grids whose axes may be merged into one."""
        return self._slots("flatten_loops")

    @property
    def l2_groupings(self) -> tuple[Slot, ...]:
        """Grids of several axes."""
        return self._slots("l2_groupings")

    @property
    def static_ranges(self) -> tuple[Slot, ...]:
        """Axes of loops that may be unrolled completely."""
        return self._slots("static_ranges")

    @property
    def range_unroll_factors(self) -> tuple[Slot, ...]:
        """Loops, with the one over programs first."""
        return self._slots("range_unroll_factors")

    @property
    def range_warp_specializes(self) -> tuple[Slot, ...]:
        """Loops that may have warps for loads alone."""
        return self._slots("range_warp_specializes")

    @property
    def range_num_stages(self) -> tuple[Slot, ...]:
        """Loops that may be pipelined."""
        return self._slots("range_num_stages")

    @property
    def range_multi_buffers(self) -> tuple[Slot, ...]:
        """Loops, with the one over programs first."""
        return self._slots("range_multi_buffers")

    @property
    def range_flattens(self) -> tuple[Slot, ...]:
        """Loops, with the one over programs first."""
        return self._slots("range_flattens")

    def _fragments(self, key: str) -> ListOf:
        slots = self._slots(key)
        return ListOf(slots[0].valid if slots else EnumFragment(("",)), len(slots))

    @property
    def indexing(self) -> ListOf:
        """How each load and store may find its addresses."""
        return self._fragments("indexing")

    @property
    def atomic_indexing(self) -> ListOf:
        """How each atomic may find its addresses."""
        return self._fragments("atomic_indexing")

    @property
    def load_eviction_policies(self) -> ListOf:
        """How each load may be kept in the cache."""
        return self._fragments("load_eviction_policies")

    @property
    def load_cache_modifiers(self) -> ListOf:
        """Which caches each load may pass by."""
        return self._fragments("load_cache_modifiers")

    @property
    def store_cache_modifiers(self) -> ListOf:
        """Which caches each store may pass by."""
        return self._fragments("store_cache_modifiers")

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
