"""What host code asks of the language: block sizes, tunables, specialised values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.host_numbers import BlockSizeInt, RuntimeInt
from tilesmith.schedule.fragments import Fragment

PROVISIONAL_BLOCK_SIZE = 32


@dataclass(frozen=True)
class RegisteredBlock:
    """A block size registered by host code."""

    slot: int
    low: int
    high: int
    value: BlockSizeInt


@dataclass
class HostSession:
    """One run of a kernel's host code, either to trace it or to launch it.

    ``block_sizes`` and ``tunables`` come from the Config (or are empty on the first trace, when
    defaults serve).
    """

    block_sizes: Mapping[int, int] = field(default_factory=dict[int, int])
    tunables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    registered: list[RegisteredBlock] = field(default_factory=list[RegisteredBlock])
    observed_slots: set[int] = field(default_factory=set[int])
    """Slots of block sizes whose value was looked at: the trace holds for these values
    only."""
    tunable_fragments: dict[str, Fragment] = field(default_factory=dict[str, Fragment])
    tunable_values: dict[str, Any] = field(default_factory=dict[str, Any])
    specialized: list[tuple[Callable[..., int], int]] = field(
        default_factory=list[tuple[Callable[..., int], int]]
    )
    """Runtime values turned into constants: how to recompute them from the arguments, and the
    value."""
    literal_sizes: set[int] = field(default_factory=set[int])
    """Sizes that host code gave as plain numbers when it made or viewed tensors."""
    is_used: bool = False
    """Whether host code calls the language at all; if not, launches need no session."""

    def register_block_size(self, low: int, high: int) -> BlockSizeInt:
        """A new tuned block size."""
        self.is_used = True
        slot = len(self.registered)
        default = max(low, min(high, PROVISIONAL_BLOCK_SIZE))
        size = self.block_sizes.get(slot, default)
        value = BlockSizeInt.make(size, slot, self.observed_slots.add)
        self.registered.append(RegisteredBlock(slot, low, high, value))
        return value

    def block_size(self, slot: int) -> int:
        """The size that the block of a config slot has in this run."""
        if slot < len(self.registered):
            return int.__int__(self.registered[slot].value)
        return self.block_sizes.get(slot, PROVISIONAL_BLOCK_SIZE)

    def register_tunable(self, name: str, fragment: Fragment) -> Any:
        """The value of a user tunable."""
        self.is_used = True
        value = self.tunables.get(name, fragment.default)
        if not isinstance(value, (int, float, bool)):
            raise errors.TunableTypeNotSupported(name=name, type=type(value).__name__)
        self.tunable_fragments[name] = fragment
        self.tunable_values[name] = value
        return value

    def is_constant_size(self, value: int) -> bool:
        """Whether a size equals one that is a constant in host code."""
        return value in self.literal_sizes or any(value == known for _, known in self.specialized)

    def specialize(self, value: Any) -> Any:
        """The plain constant behind a runtime integer; remembered as part of the specialization."""
        self.is_used = True
        if isinstance(value, (tuple, list)):
            return type(value)(self.specialize(item) for item in value)  # type: ignore[arg-type]
        if isinstance(value, bool) or not isinstance(value, int):
            raise errors.SpecializeArgType(type=kind_of(value))
        if isinstance(value, RuntimeInt):
            if value.origin is None:
                raise errors.SpecializeArgType(type="a value that the arguments alone do not give")
            self.specialized.append((value.origin, int(value)))
        return int(value)
