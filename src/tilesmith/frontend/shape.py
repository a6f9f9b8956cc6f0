"""Views of device values: subscripts, reshapes, transposes, expansion."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.emission import as_tile, broadcast_to, expand_dims, permute, reshape
from tilesmith.frontend.tile import Tile
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import Scalar, TileValue, shape_text
from tilesmith.ir.types import ONE, Dim, Shape

Rule = Callable[..., Any]


def as_dim(size: Any, operation: str) -> Dim:
    """A size-like value (int, tile, block size, symbolic size) as a dimension."""
    if isinstance(size, Tile):
        return size.dim
    if isinstance(size, bool):
        raise errors.InvalidArgumentKind(
            function=operation, problem="a bool is no size", loc=locate()
        )
    if isinstance(size, int):
        return Dim.of(size)
    if isinstance(size, Scalar) and size.as_dim is not None:
        return size.as_dim
    if isinstance(size, Scalar):
        raise errors.ShapeSpecializingAllocation(
            size=size._value.name or "a runtime value", loc=locate()
        )
    raise errors.InvalidArgumentKind(
        function=operation, problem=f"{kind_of(size)} is no size", loc=locate()
    )


def as_shape(sizes: tuple[Any, ...], operation: str) -> Shape:
    """Sizes given one by one or as one sequence."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    return tuple(as_dim(size, operation) for size in sizes)


def subscript(x: TileValue, index: Any) -> TileValue:
    """``x[:, None]``: only new axes, full slices and ``...``."""
    elements = list(index) if isinstance(index, (tuple, list)) else [index]
    taken = sum(element is not None and element is not Ellipsis for element in elements)
    if Ellipsis in [e for e in elements if e is Ellipsis]:
        place = next(i for i, e in enumerate(elements) if e is Ellipsis)
        elements[place : place + 1] = [slice(None)] * (x.tile.rank - taken)
    for element in elements:
        if element is not None and not _is_full_slice(element):
            raise _unsupported_index(element)
    if taken > x.tile.rank:
        raise errors.RankMismatch(
            tensor=x.value.name or "the value", rank=x.tile.rank, given=taken, loc=locate()
        )
    return expand_dims(x, tuple(i for i, element in enumerate(elements) if element is None))


def _is_full_slice(element: Any) -> bool:
    is_slice = isinstance(element, slice)
    return is_slice and element.start is None and element.stop is None and element.step is None


def _unsupported_index(element: Any) -> errors.BaseError:
    if isinstance(element, TileValue) and element.tile.dtype.is_bool:
        return errors.DataDependentOutputShapeNotSupported(
            operation="indexing with a bool tensor", loc=locate()
        )
    return errors.BackendUnsupported(
        operation="indexing a device value with anything but `:`, `None` and `...`",
        backend="triton",
        fix="index the host tensor where it is loaded, or pick with torch.where and a reduction",
        loc=locate(),
    )


def _normalise(axis: int, rank: int, operation: str, x: TileValue) -> int:
    if not -rank <= axis < rank:
        raise errors.ReductionDimInvalidForShape(
            operation=operation, dim=axis, shape=shape_text(x.tile.shape), loc=locate()
        )
    return axis % rank


def unsqueeze(x: TileValue, dim: int) -> TileValue:
    """Insert one axis."""
    return expand_dims(x, (_normalise(dim, x.tile.rank + 1, "unsqueeze", x),))


def squeeze(x: TileValue, dim: Any = None) -> TileValue:
    """Remove axes of size 1."""
    rank = x.tile.rank
    dims = range(rank) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = {_normalise(axis, rank, "squeeze", x) for axis in dims}
    shape = tuple(d for i, d in enumerate(x.tile.shape) if i not in axes or not d.is_one)
    return reshape(x, shape)


def _factors(shape: Shape) -> tuple[list[str], int]:
    symbols = sorted(symbol for dim in shape for symbol in dim.symbols)
    return symbols, prod(f for dim in shape for f in dim.factors if isinstance(f, int))


def _infer_missing(x: TileValue, known: Shape) -> Dim:
    """The dimension that ``-1`` stands for."""
    symbols, constant = _factors(x.tile.shape)
    known_symbols, known_constant = _factors(known)
    for symbol in known_symbols:
        if symbol not in symbols:
            raise _reshape_error(x, known)
        symbols.remove(symbol)
    if known_constant == 0 or constant % known_constant:
        raise _reshape_error(x, known)
    result = Dim.of(constant // known_constant)
    for dim in x.tile.shape:
        for symbol in dim.symbols:
            if symbol in symbols:
                symbols.remove(symbol)
                result = Dim.of(symbol) if result.is_one else Dim.of(symbol) * result
    return result


def _reshape_error(x: TileValue, shape: Shape) -> errors.BaseError:
    return errors.ShapeMismatch(
        operation="reshape", left=shape_text(x.tile.shape), right=shape_text(shape), loc=locate()
    )


def view(x: TileValue, *sizes: Any) -> TileValue:
    """``reshape``/``view`` with sizes that may be tiles, block sizes, ints or one ``-1``."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    missing = [i for i, size in enumerate(sizes) if isinstance(size, int) and size == -1]
    known = tuple(as_dim(size, "reshape") for i, size in enumerate(sizes) if i not in missing)
    shape = list(known)
    if missing:
        shape.insert(missing[0], _infer_missing(x, known))
    result = tuple(shape)
    if len(missing) > 1 or _factors(result) != _factors(x.tile.shape):
        raise _reshape_error(x, result)
    _check_padding(x, result)
    return reshape(x, result)


def _check_padding(x: TileValue, shape: Shape) -> None:
    """Merging or splitting an axis that a backend pads would mix padding into the data."""
    unchanged = [dim for dim in x.tile.shape if not dim.is_one] == [
        dim for dim in shape if not dim.is_one
    ]
    sizes = [f for dim in (*x.tile.shape, *shape) for f in dim.factors if isinstance(f, int)]
    if not unchanged and any(size & (size - 1) for size in sizes):
        raise errors.BackendUnsupported(
            operation=f"reshaping {shape_text(x.tile.shape)} to {shape_text(shape)}: merging or "
            "splitting an axis whose size is no power of two",
            backend="triton",
            loc=locate(),
        )


def transpose(x: TileValue, dim0: int, dim1: int) -> TileValue:
    """Swap two axes."""
    rank = x.tile.rank
    order = list(range(rank))
    first, second = (_normalise(d, rank, "transpose", x) for d in (dim0, dim1))
    order[first], order[second] = order[second], order[first]
    return permute(x, tuple(order))


def reverse_axes(x: TileValue) -> TileValue:
    """``.T``/``.t()``."""
    return permute(x, tuple(reversed(range(x.tile.rank))))


def permute_axes(x: TileValue, *dims: Any) -> TileValue:
    """``permute``."""
    if len(dims) == 1 and isinstance(dims[0], (tuple, list)):
        dims = tuple(dims[0])
    order = tuple(_normalise(d, x.tile.rank, "permute", x) for d in dims)
    if sorted(order) != list(range(x.tile.rank)):
        raise errors.InvalidArgumentValue(
            function="permute", problem=f"{list(dims)} is no permutation", loc=locate()
        )
    return permute(x, order)


def expand(x: TileValue, *sizes: Any) -> TileValue:
    """``expand``: -1 keeps a size."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    extra = len(sizes) - x.tile.rank
    shape = tuple(
        x.tile.shape[i - extra] if isinstance(size, int) and size == -1 else as_dim(size, "expand")
        for i, size in enumerate(sizes)
    )
    return broadcast_to(x, shape)


def flatten(x: TileValue, start_dim: int = 0, end_dim: int = -1) -> TileValue:
    """Merge neighbouring axes."""
    rank = x.tile.rank
    first, last = (_normalise(d, rank, "flatten", x) for d in (start_dim, end_dim))
    merged = ONE
    for dim in x.tile.shape[first : last + 1]:
        merged = merged * dim
    shape = (*x.tile.shape[:first], merged, *x.tile.shape[last + 1 :])
    _check_padding(x, shape)
    return reshape(x, shape)


SHAPES: dict[str, Rule] = {
    "subscript": subscript, "unsqueeze": unsqueeze, "squeeze": squeeze, "view": view,
    "reshape": view,
    "transpose": transpose, "swapaxes": transpose, "swapdims": transpose, "permute": permute_axes,
    "t": reverse_axes, "T": reverse_axes, "mT": lambda x: transpose(x, -2, -1),
    "expand": expand, "broadcast_to": expand, "flatten": flatten,
    "expand_as": lambda x, other: broadcast_to(x, as_tile(other).tile.shape),
    "view_as": lambda x, other: reshape(x, other.tile.shape),
    "reshape_as": lambda x, other: reshape(x, other.tile.shape),
}  # fmt: skip
