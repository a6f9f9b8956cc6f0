"""The base class of ops. Fields declare their role once; walking, cloning and printing follow.

An op class is made with ``@op(name, traits, axes=...)``; each field is ``operand()``,
``operands()``, ``attribute()`` or ``region()``, and ``axes`` is a form of ``ir/axis_roles.py``.
``ir/ops/catalog.py`` lists the classes, so nothing depends on import order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from enum import Flag, auto
from typing import Any, ClassVar, TypeVar, cast

from typing_extensions import Self, dataclass_transform

from tilesmith.diagnostics.location import UNKNOWN, SourceLocation
from tilesmith.ir.axis_roles import LANES_MEET, AxisForm, OperandRoles
from tilesmith.ir.types import Constant, Value


class Trait(Flag):
    """Properties of an op class."""

    NONE = 0
    PURE = auto()
    """No effect, result depends on operands only: may be merged, moved and removed."""
    READS = auto()
    """Reads memory."""
    WRITES = auto()
    """Writes memory."""
    TERMINATOR = auto()
    """Ends a region and hands its operands to the enclosing op."""
    VIEW = auto()
    """Computes nothing: each element is one of the only operand's, or a fill."""
    EFFECT = auto()
    """Has an effect other than on memory (prints, stops, foreign code): stays where it is."""

    def __contains__(self, other: Flag) -> bool:
        return self._value_ & other._value_ == other._value_


ROLE, NAMED = "role", "named"
OPERAND, OPERANDS, ATTRIBUTE, REGION = "operand", "operands", "attribute", "region"


def operand(*, optional: bool = False, named: bool = False) -> Any:
    """A field holding one value (or None when optional).

    Text shows a ``named`` one last and by name, and only where there is one: few ops have it.
    """
    metadata = {ROLE: OPERAND, NAMED: named}
    return field(default=None, metadata=metadata) if optional else field(metadata=metadata)


def operands() -> Any:
    """A field holding a tuple of values."""
    return field(default=(), metadata={ROLE: OPERANDS})


def attribute(**kwargs: Any) -> Any:
    """A field holding plain data: int, float, bool, str, None or tuples of them."""
    return field(metadata={ROLE: ATTRIBUTE}, **kwargs)


def region() -> Any:
    """A field holding a nested ``Region``."""
    return field(metadata={ROLE: REGION})


@dataclass(frozen=True, eq=False)
class Region:
    """A list of ops with arguments; its last op is a terminator when the owner has results."""

    args: tuple[Value, ...]
    ops: tuple[Operation, ...]

    def with_ops(self, ops: Iterable[Operation]) -> Region:
        """The same region with other ops; itself where they are the ones it has."""
        new_ops = tuple(ops)
        is_same = len(new_ops) == len(self.ops) and all(map(operator.is_, new_ops, self.ops))
        return self if is_same else Region(self.args, new_ops)

    @property
    def terminator(self) -> Operation:
        """The op that ends this region."""
        return self.ops[-1]

    @property
    def yielded(self) -> tuple[Value, ...]:
        """The values handed to the owner; none where an owner without results has no terminator."""
        if not self.ops or Trait.TERMINATOR not in self.ops[-1].traits:
            return ()
        return tuple(self.ops[-1].operand_values())


@dataclass(frozen=True, eq=False, kw_only=True)
class Operation:
    """One op: operands and attributes declared by the subclass, plus results and a location."""

    name: ClassVar[str]
    traits: ClassVar[Trait]
    num_results: ClassVar[int | None] = 1
    """How many results the op has; None when it follows from the operands (loops, branches)."""
    form: ClassVar[AxisForm]
    """How the axes of the operands take part in the results."""
    _fields_by_role: ClassVar[dict[str, tuple[Field[Any], ...]]] = {}
    # Passes ask every op they meet for these: names are found once per class.
    _single_names: ClassVar[tuple[str, ...]] = ()
    _variadic_names: ClassVar[tuple[str, ...]] = ()
    _region_names: ClassVar[tuple[str, ...]] = ()

    results: tuple[Value, ...] = ()
    loc: SourceLocation = field(default=UNKNOWN, repr=False)

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    @classmethod
    def fields_of(cls, role: str) -> tuple[Field[Any], ...]:
        """The declared fields with that role, in order."""
        return cls._fields_by_role.get(role, ())

    def operand_values(self) -> Iterator[Value]:
        """All operands, single ones first, then the variadic ones, in order of declaration."""
        for name in self._single_names:
            value = getattr(self, name)
            if value is not None:
                yield value
        for name in self._variadic_names:
            yield from getattr(self, name)

    def regions(self) -> tuple[Region, ...]:
        """The nested regions, in order of declaration."""
        names = self._region_names
        return tuple([getattr(self, name) for name in names]) if names else ()

    def attributes(self) -> dict[str, Any]:
        """The attribute values by name."""
        return {item.name: getattr(self, item.name) for item in self.fields_of(ATTRIBUTE)}

    def with_operands(self, substitution: Callable[[Value], Value]) -> Self:
        """The same op over substituted operands (self if none changed); regions are not entered."""
        changes: dict[str, Any] = {}
        for name in self._single_names:
            value = getattr(self, name)
            if value is not None and (new := substitution(value)) is not value:
                changes[name] = new
        for name in self._variadic_names:
            values = cast("tuple[Value, ...]", getattr(self, name))
            new_values = tuple(map(substitution, values))
            if not all(map(operator.is_, new_values, values)):
                changes[name] = new_values
        return self._with(changes) if changes else self

    def with_operand_list(self, values: Sequence[Value]) -> Self:
        """The same op over other operands, given in the order of ``operand_values``."""
        rest = iter(values)
        return self.with_operands(lambda _: next(rest))

    def with_regions(self, new_regions: tuple[Region, ...]) -> Self:
        """The same op with its regions replaced."""
        changes = dict(zip(self._region_names, new_regions))
        is_same = all(new is getattr(self, name) for name, new in changes.items())
        return self if is_same else self._with(changes)

    def _with(self, changes: dict[str, Any]) -> Self:
        """A copy with other values in some fields: ``replace``, which looks at every field."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.__dict__.update(changes)
        return copy

    def verify(self) -> str | None:
        """A sentence saying what is wrong with this op alone, or None."""
        return None

    def axis_roles(self) -> tuple[OperandRoles, ...]:
        """The role of each axis of each operand, in the order of ``operand_values``."""
        return self.form.of(self)

    def with_axis_numbers(self, numbers: tuple[int, ...]) -> Self:
        """The same op with other numbers in the attribute that holds axes."""
        name = self.form.attribute
        is_single = isinstance(getattr(self, name), int)
        return replace(self, **{name: numbers[0] if is_single else numbers})

    def neutral(self, position: int) -> Constant | None:
        """What invalid lanes of an operand must hold along combined and mixed axes.

        None where the op leaves out invalid lanes itself. ``position`` counts ``operand_values``.
        """
        raise NotImplementedError(f"{self.name} combines no lanes")

    def neutral_result(self, axis: int) -> Constant | None:
        """What lanes invalid along a result axis hold if those of the operand are neutral there.

        None where that is not known.
        """
        return None

    def of_one_lane(self) -> tuple[Value | Constant, ...]:
        """The results where the axis that the op makes or works along has one lane, a valid one.

        Values stand for themselves without that axis, converted to the result's element type.
        """
        return tuple(self.operand_values())[: len(self.results)]


OpClass = TypeVar("OpClass", bound=type[Operation])


@dataclass_transform(
    frozen_default=True,
    kw_only_default=True,
    field_specifiers=(operand, operands, attribute, region),
)
def op(
    name: str,
    traits: Trait = Trait.NONE,
    num_results: int | None = 1,
    *,
    axes: AxisForm | None = None,
) -> Callable[[OpClass], OpClass]:
    """Freeze an op class and give it its IR name, traits, number of results and axis roles."""

    def decorate(cls: OpClass) -> OpClass:
        cls = cast("OpClass", dataclass(frozen=True, eq=False, kw_only=True)(cls))
        if axes is None:
            raise TypeError(f"op {name!r} does not declare its axis roles")
        cls.name, cls.traits, cls.num_results, cls.form = name, traits, num_results, axes
        _check_declaration(cls)
        cls._fields_by_role = {
            role: tuple(item for item in fields(cls) if item.metadata.get(ROLE) == role)
            for role in (OPERAND, OPERANDS, ATTRIBUTE, REGION)
        }
        cls._single_names, cls._variadic_names, cls._region_names = (
            tuple(item.name for item in cls.fields_of(role)) for role in (OPERAND, OPERANDS, REGION)
        )
        return cls

    return decorate


def _check_declaration(cls: type[Operation]) -> None:
    """Refuse an op class that leaves something open which passes would have to guess."""
    names = {item.name for item in fields(cls)}
    for item in fields(cls):
        if item.name not in ("results", "loc") and ROLE not in item.metadata:
            raise TypeError(f"field {cls.__name__}.{item.name} has no role")
    if cls.form.attribute and cls.form.attribute not in names:
        raise TypeError(f"op {cls.name!r} has no field {cls.form.attribute!r} for its axes")
    if cls.form.roles & LANES_MEET and cls.neutral is Operation.neutral:
        raise TypeError(f"op {cls.name!r} does not say what invalid lanes must hold (neutral)")
