"""SSA values and their types: tiles (computed values) and tensors (memory the caller owns).

A tile's dimension is a product of constants and symbols. A symbol is the name of a block (a tuned
or fixed block size) or of a runtime size; both are declared in the ``Function``. Two dimensions
are the same axis exactly when they are equal, so tiles of different loops never align by accident.
``dynamic_form`` is what a function with runtime sizes still depends on in its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import prod

from tilesmith.diagnostics.location import UNKNOWN, SourceLocation
from tilesmith.dtypes import DType

Extent = int | str
"""A size or stride of a tensor: a constant, or the name of a runtime scalar parameter."""


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least ``n`` (1 for n <= 1)."""
    return 1 << max(0, n - 1).bit_length()


@dataclass(frozen=True)
class Dim:
    """One tile dimension: an ordered product of integers and symbol names."""

    factors: tuple[int | str, ...]

    @staticmethod
    def of(extent: Extent) -> Dim:
        """The dimension of one constant or one symbol."""
        return Dim(()) if extent == 1 else Dim((extent,))

    @property
    def constant(self) -> int | None:
        """The size if it contains no symbol, else None."""
        if any(isinstance(factor, str) for factor in self.factors):
            return None
        return prod(factor for factor in self.factors if isinstance(factor, int))

    @property
    def is_one(self) -> bool:
        """Whether this is the constant 1, which broadcasts."""
        return not self.factors

    @property
    def symbol(self) -> str | None:
        """The symbol's name if the dimension is just that symbol, else None."""
        if len(self.factors) == 1 and isinstance(self.factors[0], str):
            return self.factors[0]
        return None

    @property
    def symbols(self) -> tuple[str, ...]:
        """All symbol names, in order."""
        return tuple(factor for factor in self.factors if isinstance(factor, str))

    def __mul__(self, other: Dim) -> Dim:
        merged: list[int | str] = list(self.factors)
        for factor in other.factors:
            if merged and isinstance(factor, int) and isinstance(merged[-1], int):
                merged[-1] *= factor
            else:
                merged.append(factor)
        return Dim(tuple(merged))

    def substitute(self, replacements: dict[str, Dim]) -> Dim:
        """The same product with symbols replaced."""
        result = ONE
        for factor in self.factors:
            result = result * replacements.get(str(factor), Dim((factor,)))
        return result

    def physical(self, symbols: Mapping[str, int], padded: Mapping[int, int]) -> int:
        """The product of the factors, as large as they are on a device."""
        size = 1
        for factor in self.factors:
            size *= symbols[factor] if isinstance(factor, str) else padded.get(factor, factor)
        return size

    def __str__(self) -> str:
        return "*".join(str(factor) for factor in self.factors) or "1"


ONE = Dim(())
Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class TileType:
    """A value held by one program: element type and shape. Rank 0 is a scalar."""

    dtype: DType
    shape: Shape = ()

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def with_dtype(self, dtype: DType) -> TileType:
        """The same shape with another element type."""
        return TileType(dtype, self.shape)

    def with_shape(self, shape: Shape) -> TileType:
        """The same element type with another shape."""
        return TileType(self.dtype, shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class TensorType:
    """A tensor in memory, addressed through its strides (in elements).

    ``alias`` groups tensors that share storage: two with equal non-negative alias may overlap.
    """

    dtype: DType
    shape: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    alias: int = 0
    wide: bool = False
    """Whether offsets into it may pass 2^31 - 1 elements, so they need 64-bit arithmetic."""

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __str__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        strides = ", ".join(map(str, self.strides))
        wide = ", wide" if self.wide else ""
        return f"tensor<{self.dtype}[{shape}], strides=[{strides}], alias={self.alias}{wide}>"


Type = TileType | TensorType


def scalar(dtype: DType) -> TileType:
    """The type of a rank-0 tile."""
    return TileType(dtype, ())


INT32_LIMIT = 2**31 - 1
DynamicForm = tuple[tuple[int, ...], tuple[int, ...], bool]


@lru_cache(maxsize=4096)
def dynamic_form(shape: tuple[int, ...], strides: tuple[int, ...]) -> DynamicForm:
    """Sizes and strides with 2 for all but 0 and 1, and whether offsets need 64 bits."""
    span = sum((n - 1) * abs(s) for n, s in zip(shape, strides) if n)
    return plain_extents(shape), plain_extents(strides), span > INT32_LIMIT


def plain_extents(extents: tuple[object, ...]) -> tuple[int, ...]:
    """Each extent if it is 0 or 1, else 2; symbols stand for runtime values."""
    return tuple(2 if extent not in (0, 1) else int(extent == 1) for extent in extents)


Constant = int | float | bool
"""What one lane holds where that is known at compile time."""


@dataclass(eq=False)
class Value:
    """One SSA value. Only the name may change after creation; it has no meaning, only readers."""

    type: Type
    name: str = ""
    loc: SourceLocation = field(default=UNKNOWN, repr=False)

    @property
    def tile(self) -> TileType:
        """The type of a value known to be a tile."""
        assert isinstance(self.type, TileType), self
        return self.type

    @property
    def tensor(self) -> TensorType:
        """The type of a value known to be a tensor."""
        assert isinstance(self.type, TensorType), self
        return self.type

    def like(self, new_type: Type | None = None) -> Value:
        """A fresh value with the same name and location."""
        return Value(new_type or self.type, self.name, self.loc)


MAX_COUNTED = 1 << 16
"""Elements that are looked at one by one; of larger tensors a part is."""


def may_overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Quickly: False if every stride passes all that smaller ones reach."""
    if 0 in shape:
        return False
    reached = 0
    for stride, size in sorted((s, n) for s, n in zip(strides, shape) if n > 1):
        if stride <= reached:
            return True
        reached += stride * (size - 1)
    return False


@lru_cache(maxsize=4096)
def find_overlap(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two elements are certain to be one; of many elements the first are looked at."""
    if not may_overlap(shape, strides):
        return False
    if any(stride == 0 and size > 1 for size, stride in zip(shape, strides)):
        return True
    sizes = list(shape)
    while prod(sizes) > MAX_COUNTED:
        longest = sizes.index(max(sizes))
        sizes[longest] = (sizes[longest] + 1) // 2
    positions = product(*(range(size) for size in sizes))
    offsets = {sum(i * s for i, s in zip(at, strides)) for at in positions}
    return len(offsets) < prod(sizes)
