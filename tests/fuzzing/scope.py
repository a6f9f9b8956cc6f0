"""What may be named at a place of a growing program, and how names and tensors are made."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch

from tests.fuzzing.choices import Choices, chance, pick
from tests.fuzzing.pointwise import ANY, EIGHT_BITS
from tests.fuzzing.program import Scalar, TensorSpec, Value

LAYOUTS = ("contiguous", "transposed", "gaps", "offset", "expanded")
OUTPUT_LAYOUTS = ("contiguous", "transposed", "gaps", "offset")
OUTPUT_TYPES = (None, None, None, torch.float32, torch.int32, torch.float16, torch.int64)
FILLS = (0, 7, 1)
SMOOTH_TYPES = (torch.float32, torch.float64)


@dataclass
class Stored:
    """A tensor stored to: its dimensions' axes, ``own`` ones of the program among them.

    Attributes:
        alias: another argument with the same memory, if there is one.
    """

    spec: TensorSpec
    axes: tuple[str, ...]
    alias: TensorSpec | None = None

    def through(self, choices: Choices) -> Stored:
        """The tensor itself, or the same memory by its other name."""
        if self.alias is None or not chance(choices, 60):
            return self
        axes = self.axes[::-1] if self.alias.is_turned else self.axes
        return Stored(self.alias, axes)


@dataclass
class Scope:
    """Names visible at one place.

    Attributes:
        tiles: tile axes and the names of their sizes.
        counts: loop indices and the sizes they stay below (a name or a number).
        own: tile axes and indices that tell programs (and turns of tile loops) apart.
        values: device values.
        rebindable: those that may get a new value here.
        stored: tensors written by this top-level loop.
        merged: axes made of several, tiles among them, and the axes each is made of.
    """

    tiles: dict[str, str] = field(default_factory=dict[str, str])
    counts: dict[str, str | int] = field(default_factory=dict[str, "str | int"])
    own: tuple[str, ...] = ()
    values: list[Value] = field(default_factory=list[Value])
    rebindable: list[Value] = field(default_factory=list[Value])
    stored: list[Stored] = field(default_factory=list[Stored])
    programs: tuple[str, ...] = ()
    """The part of ``own`` that tells programs apart."""
    merged: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])

    def inner(self) -> Scope:
        """A block inside: new names end with it; what was stored stays known."""
        return replace(
            self,
            tiles=dict(self.tiles),
            counts=dict(self.counts),
            merged=dict(self.merged),
            values=list(self.values),
            rebindable=list(self.rebindable),
        )

    def parts(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Tiles and whole dimensions that axes are made of."""
        return tuple(part for axis in axes for part in self.merged.get(axis, (axis,)))

    def is_whole(self, axis: str) -> bool:
        """Whether an axis is there from its first element to its last."""
        return axis not in self.tiles and axis not in self.merged

    def whole_axes(self) -> list[tuple[Value, int]]:
        """Values, the newest first, with the places of their whole dimensions."""
        return [
            (value, dim)
            for value in reversed(self.values)
            for dim, axis in enumerate(value.axes)
            if self.is_whole(axis)
        ]

    def add(self, value: Value) -> Value:
        """Make a value known."""
        self.values.append(value)
        self.rebindable.append(value)
        return value


class Workshop:
    """Makes names and tensors of one program."""

    def __init__(self, choices: Choices, sizes: dict[str, int], content: str, is_static: bool):
        self.choices = choices
        self.sizes = sizes
        self.content = content
        self.is_static = is_static
        self.is_smooth = False
        """Whether all it computes are sums and products of floats, which have gradients."""
        self.tensors: list[TensorSpec] = []
        self.scalars: list[Scalar] = []
        self.finished: list[TensorSpec] = []
        """Tensors that a top-level loop before a barrier has written."""
        self._numbers: dict[str, int] = {}

    def name(self, prefix: str) -> str:
        """A new name."""
        number = self._numbers.get(prefix, 0)
        self._numbers[prefix] = number + 1
        return f"{prefix}{number}"

    def value(self, dtype: torch.dtype, axes: tuple[str, ...]) -> Value:
        """A new device value."""
        return Value(self.name("v"), dtype, axes)

    def new_input(self, dims: tuple[str, ...], dtype: torch.dtype | None = None) -> TensorSpec:
        """A tensor with data."""
        types = SMOOTH_TYPES if self.is_smooth else ANY + EIGHT_BITS
        dtype = dtype or pick(self.choices, types)
        layout = pick(self.choices, LAYOUTS)
        spec = TensorSpec(self.name("x"), dtype, dims, layout, self.new_content())
        self.tensors.append(spec)
        return spec

    def new_content(self) -> str:
        """What kind of numbers a tensor has: often that of the program."""
        others = ("low",) if self.is_smooth else ("low", "wide")
        return pick(self.choices, (self.content, self.content, self.content, *others))

    @property
    def inputs(self) -> list[TensorSpec]:
        """Tensors with data that no statement stores to."""
        changed = {spec.name for spec in self.tensors if spec.is_output}
        return [x for x in self.tensors if x.is_data and changed.isdisjoint((x.name, x.shares))]

    def new_alias(self, spec: TensorSpec) -> TensorSpec:
        """Another argument that is the same memory, perhaps the other way round."""
        is_turned = chance(self.choices, 50)
        dims = spec.dims[::-1] if is_turned else spec.dims
        alias = replace(
            spec, name=self.name("same"), dims=dims, shares=spec.name, is_turned=is_turned,
            is_output=False,
        )  # fmt: skip
        self.tensors.append(alias)
        return alias

    def new_index(self, size: str, limit: int | str, content: str = "index") -> TensorSpec:
        """A vector of indices below ``limit``."""
        dtype = pick(self.choices, (torch.int64, torch.int32))
        layout = pick(self.choices, LAYOUTS if content == "index" else OUTPUT_LAYOUTS)
        spec = TensorSpec(self.name("index"), dtype, (size,), layout, content, limit)
        self.tensors.append(spec)
        return spec

    def new_changed(self, dims: tuple[str | int, ...], dtype: torch.dtype) -> TensorSpec:
        """A tensor with data that is stored to."""
        layout = pick(self.choices, OUTPUT_LAYOUTS)
        spec = TensorSpec(
            self.name("out"), dtype, dims, layout, self.new_content(), is_output=True
        )  # fmt: skip
        self.tensors.append(spec)
        return spec

    def new_output(self, dims: tuple[str | int, ...], dtype: torch.dtype) -> TensorSpec:
        """A tensor to store to."""
        layout = pick(self.choices, OUTPUT_LAYOUTS)
        is_allocated = self.is_smooth or chance(self.choices, 30)
        fill = pick(self.choices, FILLS)
        spec = TensorSpec(
            self.name("out"),
            dtype,
            dims,
            "contiguous" if is_allocated else layout,
            "fill",
            min(fill, 1) if dtype == torch.bool else fill,
            is_output=True,
            is_allocated=is_allocated,
        )
        self.tensors.append(spec)
        return spec

    def whole(self, size: int, others: tuple[str, ...]) -> str:
        """The name of a whole dimension of a size, none of ``others``."""
        name = f"S{size}"
        while name in others:
            name += "b"
        self.sizes[name] = size
        return name

    def elements(self, scope: Scope, axes: tuple[str, ...]) -> int:
        """How many elements the whole tensor with these axes has."""
        return math.prod(self.sizes[scope.tiles.get(axis, axis)] for axis in scope.parts(axes))

    def length(self, dim: str | int) -> int:
        """A size by name or number."""
        return self.sizes[dim] if isinstance(dim, str) else dim
