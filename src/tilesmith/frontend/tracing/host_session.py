"""One run of host code: its numbers that are not constants, block sizes, tunables.

``RuntimeInt``/``RuntimeFloat`` stand for scalar arguments (and sizes, under dynamic shapes) while
host code runs for tracing; arithmetic keeps the mark. ``BlockSizeInt`` stands for a registered
block size and notes when host code looks at its value, because then the trace holds for that value
only. ``ConstantSizes`` knows which sizes and strides are constants where shapes are dynamic.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.tracing.plain_strides import plain_strides
from tilesmith.schedule.space.fragments import Fragment

_BINARY = (
    "add", "sub", "mul", "floordiv", "mod", "truediv", "pow", "lshift", "rshift", "and", "or",
    "xor",
)  # fmt: skip
_UNARY = ("neg", "pos", "abs")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_CONVERSIONS = ("index", "int", "float", "bool")


Axis = tuple[int, str, int]
"""A tensor by its identity, "size" or "stride", and the number of one of its axes."""


def place_of(tensor: torch.Tensor, kind: str, axis: int) -> Axis:
    """Where a size or stride is read."""
    return id(tensor), kind, axis % tensor.dim()


@dataclass
class ConstantSizes:
    """What is known from one run of host code, and from attempts before it.

    A size is a constant if host code specialises that very size, or makes the tensor with a plain
    number. That another size happens to equal it says nothing. Only where device code uses the two
    as one dimension the other becomes a constant too, checked at each launch: then the kernel is
    traced again.
    """

    expressions: frozenset[str] = frozenset()
    """Launch expressions of sizes that met constants in an earlier attempt."""
    shared: frozenset[str] = frozenset()
    """Those of sizes that equal a constant and met each other in an earlier attempt."""
    takes_equal: bool = False
    """The last resort: every size that equals a constant is one."""
    wanted: set[str] = field(default_factory=set[str])
    """Launch expressions of sizes that met constants in this attempt."""
    wanted_shared: set[str] = field(default_factory=set[str])
    """Launch expressions of sizes that met each other in this attempt."""
    _values: set[int] = field(default_factory=set[int])
    _axes: set[Axis] = field(default_factory=set[Axis])
    _kept: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    """Tensors of host code: while they live, nothing else has their identity."""

    def note_value(self, value: int, axis: Axis | None = None) -> None:
        """A number is a constant, and so is the size that it was read from."""
        self._values.add(value)
        if axis is not None:
            self._axes.add(axis)

    def note_made(self, tensor: torch.Tensor, sizes: Sequence[Any]) -> None:
        """A tensor was made with these sizes: plain numbers among them are constants."""
        self._kept.append(tensor)
        for axis, size in enumerate(sizes):
            if type(size) is int and size > 1:
                self.note_value(size, place_of(tensor, "size", axis))
        self._axes.update(place_of(tensor, "stride", axis) for axis in plain_strides(tensor, sizes))

    def note_like(self, tensor: torch.Tensor, original: torch.Tensor) -> None:
        """A tensor was made with the sizes of another."""
        self._kept.append(tensor)
        axes = [a for a in range(original.dim()) if place_of(original, "size", a) in self._axes]
        self._axes.update(place_of(tensor, "size", axis) for axis in axes)

    def is_noted(self, axis: Axis) -> bool:
        """Whether the size of an axis is a constant from the beginning."""
        return axis in self._axes

    def is_constant(self, expression: str, value: int, axis: Axis | None = None) -> bool:
        """Whether the size or number that a launch expression gives is a constant."""
        if axis in self._axes or expression in self.expressions:
            return True
        return self.takes_equal and value in self._values and "stride" not in (axis or ())

    def note_met(self, expression: str) -> None:
        """A runtime size met a constant that it equals: both can only be one dimension."""
        self.wanted.add(expression)

    def shares_symbol(self, expression: str, value: int) -> bool:
        """Whether a runtime size is taken for the same as others that equal it.

        Not at once where it equals a constant: only one of them may turn out to be that constant.
        """
        return value not in self._values or expression in self.shared

    def after_failure(self) -> ConstantSizes | None:
        """What to try next, when device code could not be traced; None: the error is the user's."""
        if self.takes_equal or not (self._values or self.wanted):
            return None
        new, new_shared = self.wanted - self.expressions, self.wanted_shared - self.shared
        return ConstantSizes(
            self.expressions | new, self.shared | new_shared, takes_equal=not (new or new_shared)
        )


class RuntimeInt(int):
    """An int whose value may differ at the next call with the same specialization key."""

    origin: Callable[..., int] | None = None
    """Recomputes the value from the kernel's arguments, when it comes from them alone."""
    axis: Axis | None = None
    """The axis of a tensor that it is the size of."""

    @classmethod
    def make(
        cls, value: int, origin: Callable[..., int] | None = None, axis: Axis | None = None
    ) -> RuntimeInt:
        """An integer with the mark, and how to recompute it."""
        number = cls(value)
        number.origin, number.axis = origin, axis
        return number


class RuntimeFloat(float):
    """A float whose value may differ at the next call with the same specialization key."""


class BlockSizeInt(int):
    """The concrete value of a registered block size while host code runs."""

    slot: int
    on_observed: Callable[[int], None]

    @classmethod
    def make(cls, value: int, slot: int, on_observed: Callable[[int], None]) -> BlockSizeInt:
        """A block size that reports when its value is looked at."""
        number = cls(value)
        number.slot = slot
        number.on_observed = on_observed
        return number


def _mark(value: Any, origin: Callable[..., int] | None) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return RuntimeInt.make(value, origin) if isinstance(value, int) else RuntimeFloat(value)


def _origin_of(value: Any) -> Callable[..., Any] | None:
    if isinstance(value, RuntimeInt):
        return value.origin
    return (lambda *_: value) if isinstance(value, int) else None


def _compose(function: Callable[..., Any], *values: Any) -> Callable[..., Any] | None:
    origins = [_origin_of(value) for value in values]
    if any(origin is None for origin in origins):
        return None
    return lambda *args: function(*(origin(*args) for origin in origins if origin is not None))


def _runtime_operator(name: str, base: type, *, reflected: bool) -> Callable[..., Any]:
    method = getattr(base, f"__{'r' if reflected else ''}{name}__")
    function: Callable[..., Any] = getattr(operator, f"{name}_" if name in ("and", "or") else name)

    def apply(self: Any, other: Any) -> Any:
        note_use(other)
        result = method(self, other)
        if result is NotImplemented:
            return result
        pair = (other, self) if reflected else (self, other)
        return _mark(result, _compose(function, *pair))

    return apply


def _runtime_comparison(name: str, base: type) -> Callable[..., Any]:
    method = getattr(base, name)

    def apply(self: Any, other: Any) -> Any:
        note_use(other)
        return method(self, other)

    return apply


def note_use(value: Any) -> None:
    """Report a use that the value's own methods do not see, of a block size in it."""
    if isinstance(value, BlockSizeInt):
        value.on_observed(value.slot)
    elif isinstance(value, (list, tuple)):
        for item in value:
            note_use(item)


def _observing_operator(name: str) -> Callable[..., Any]:
    method = getattr(int, name)

    def apply(self: BlockSizeInt, *others: Any) -> Any:
        self.on_observed(self.slot)
        return method(self, *others)

    return apply


def _install_runtime_operators(cls: type, base: type) -> None:
    """Arithmetic on a marked number gives a marked number."""
    for name in _BINARY:
        for reflected in (False, True):
            dunder = f"__{'r' if reflected else ''}{name}__"
            if hasattr(base, dunder):
                setattr(cls, dunder, _runtime_operator(name, base, reflected=reflected))
    for name in _UNARY:
        method = getattr(base, f"__{name}__")
        setattr(cls, f"__{name}__", lambda self, method=method: _mark(method(self), None))
    for name in _COMPARISONS:
        setattr(cls, f"__{name}__", _runtime_comparison(f"__{name}__", base))
    # Defining equality removes the hash.
    cls.__hash__ = base.__hash__


def _install_observers() -> None:
    """Anything that looks at the value of a block size reports it."""
    binary = [f"__{prefix}{name}__" for name in _BINARY for prefix in ("", "r")]
    others = [f"__{name}__" for name in (*_UNARY, *_COMPARISONS, *_CONVERSIONS)]
    for dunder in (*binary, *others):
        setattr(BlockSizeInt, dunder, _observing_operator(dunder))
    # Defining equality removes the hash, which sets and dictionaries of sizes need.
    BlockSizeInt.__hash__ = int.__hash__  # type: ignore[method-assign]


_install_runtime_operators(RuntimeInt, int)
_install_runtime_operators(RuntimeFloat, float)
_install_observers()

PROVISIONAL_BLOCK_SIZE = 32
"""What a tuned block size is taken for on the first trace, before there is a Config."""


@dataclass(frozen=True)
class RegisteredBlock:
    """A block size registered by host code."""

    slot: int
    low: int
    high: int
    value: BlockSizeInt
    is_runtime_size: bool = False
    """Whether ``high`` is what a runtime size happened to be: later calls may have more."""


@dataclass
class HostSession:
    """One run of a kernel's host code, either to trace it or to launch it.

    ``block_sizes`` and ``tunables`` come from the Config (or are empty on the first trace, when
    defaults serve).
    """

    block_sizes: Mapping[int, int] = field(default_factory=dict[int, int])
    tunables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    registered: list[RegisteredBlock] = field(default_factory=list[RegisteredBlock])
    rounded_sizes: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """Sizes and what ``helion.next_power_of_2`` made of them: values of both may meet."""
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
    constant_sizes: ConstantSizes = field(default_factory=ConstantSizes)
    """Sizes that are constants although shapes are dynamic."""
    device: Any = None
    """The kernel's ``torch.device``: where the language makes tensors of host code."""
    is_used: bool = False
    """Whether host code calls the language at all; if not, launches need no session."""

    def register_block_size(
        self, low: int, high: int, *, is_runtime_size: bool = False
    ) -> BlockSizeInt:
        """A new tuned block size."""
        self.is_used = True
        slot = len(self.registered)
        default = max(low, min(high, PROVISIONAL_BLOCK_SIZE))
        size = self.block_sizes.get(slot, default)
        value = BlockSizeInt.make(size, slot, self.observed_slots.add)
        self.registered.append(RegisteredBlock(slot, low, high, value, is_runtime_size))
        return value

    def block_size(self, slot: int) -> int:
        """The size that the block of a config slot has in this run."""
        if slot < len(self.registered):
            # Not int(...): that would count as looking at the value.
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
            self.constant_sizes.note_value(int(value), value.axis)
        return int(value)
