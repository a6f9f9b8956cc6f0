"""Views of device values: reshapes, transposes, expansion.

A reshape is worked out factor by factor. A tile axis may be merged with others, but split only if
no tile is partial: how many of its lanes are valid is known only at run time. Factors keep their
order, so that lanes are the same on every backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.refusals import invalid_kind, invalid_value, unsupported_axis
from tilesmith.frontend.tracing import emission, known_sizes
from tilesmith.frontend.tracing.tile import Tile
from tilesmith.frontend.tracing.tracer import current_tracer
from tilesmith.frontend.tracing.values import Scalar, TileValue, shape_text, size_of_dim
from tilesmith.ir.types import ONE, Dim, Shape


def as_dim(size: Any, operation: str) -> Dim:
    """A size-like value (int, tile, block size, symbolic size) as a dimension."""
    if isinstance(size, Tile):
        return size.dim
    if isinstance(size, bool):
        raise invalid_kind(operation, "a bool is no size")
    if isinstance(size, int):
        return Dim.of(size)
    if isinstance(size, Scalar) and size.as_dim is not None:
        return size.as_dim
    if isinstance(size, Scalar):
        dim = known_sizes.length_between(0, size)
        if dim is not None and dim.constant is None:
            return dim
        dim = known_sizes.config_length(0, size)
        if dim is not None:
            return dim
        raise errors.ShapeSpecializingAllocation(size=size._value.name or "a runtime value")
    fix = "use a tile, or a number that is known at compile time (hl.specialize on the host)"
    raise invalid_kind(operation, f"{kind_of(size)} is no size", fix)


def as_shape(sizes: tuple[Any, ...], operation: str) -> Shape:
    """Sizes given one by one or as one sequence."""
    return tuple(as_dim(size, operation) for size in emission.one_by_one(sizes))


def _factors(dim: Dim) -> tuple[str, ...]:
    """The factors of a dimension, in an order that does not depend on its own."""
    return tuple(sorted(str(factor) for factor in dim.factors))


def new_shape(sizes: tuple[Any, ...], operation: str) -> Shape:
    """As ``as_shape``, for a value out of nothing: multiples of runtime sizes are no axes.

    ``2 * t.block_size`` says nothing of the order: it is what a reshape made of such axes before.
    """
    tracer = current_tracer(operation)
    shape = as_shape(sizes, operation)
    shape = tuple(tracer.merged_axes.get(_factors(dim), dim) for dim in shape)
    known = tracer.sizes
    for dim in shape:
        if len(dim.factors) > 1 and any(symbol in known for symbol in dim.symbols):
            raise errors.ShapeSpecializingAllocation(size=str(dim))
    return shape


def constant_size(
    x: TileValue, axis: int, function: str, error: type[errors.BaseError] | None = None
) -> int:
    """The size of an axis that must be known; ``error`` is for functions that need more than it."""
    size = x.tile.shape[axis].constant
    if size is not None:
        return size
    place = f"{function} along the tile axis {x.tile.shape[axis]}"
    if error is not None:
        raise error(function=place)
    fix = "index the host tensor where it is loaded; axes of constant size can be cut"
    raise unsupported_axis(f"{place}, whose size varies,", fix)


def resolve_axis(x: TileValue, dim: Any, name: str, *, num_new: int = 0) -> int:
    """A dimension argument counted from 0, among the axes of a value and ``num_new`` more."""
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise errors.InvalidReductionDim(operation=name, dim=repr(dim))
    rank = x.tile.rank + num_new
    if not -rank <= dim < rank:
        raise errors.ReductionDimInvalidForShape(
            operation=name, dim=dim, shape=shape_text(x.tile.shape)
        )
    return dim % rank


def unsqueeze(x: TileValue, dim: int) -> TileValue:
    """Insert one axis of size 1."""
    return emission.expand_dims(x, (resolve_axis(x, dim, "unsqueeze", num_new=1),))


def squeeze(x: TileValue, dim: Any = None) -> TileValue:
    """Remove axes of size 1."""
    rank = x.tile.rank
    if rank == 0 and dim in (None, 0, -1):
        # Eager lets a scalar have the dimension 0 here.
        return x
    dims = range(rank) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = {resolve_axis(x, axis, "squeeze") for axis in dims}
    shape = tuple(d for i, d in enumerate(x.tile.shape) if i not in axes or not d.is_one)
    return emission.reshape(x, shape)


def _reshape_error(x: TileValue, wanted: list[Dim | None]) -> errors.BaseError:
    return errors.ShapeMismatch(
        operation="reshape",
        left=shape_text(x.tile.shape),
        right=f"[{', '.join('-1' if dim is None else str(dim) for dim in wanted)}]",
        note="a reshape may merge tile axes with others, but neither reorder them\n"
        "nor split those with a partial tile, nor make such axes of others",
        fix="give as many elements, with tiles as the sizes of tile axes: v.reshape(tile, -1);\n"
        "to split a tile, view the host tensor so before the loop, x.view(-1, 2), and tile that",
    )


def view(x: TileValue, *sizes: Any) -> TileValue:
    """``reshape``/``view`` with sizes that may be tiles, block sizes, ints or one ``-1``."""
    wanted = [
        None if isinstance(size, int) and size == -1 else as_dim(size, "reshape")
        for size in emission.one_by_one(sizes)
    ]
    shape = divide_axes(x.tile.shape, wanted) if wanted.count(None) < 2 else None
    if shape is None and None not in wanted:
        shape = _divide_numbers(x.tile.shape, tuple(dim for dim in wanted if dim is not None))
    if shape is None:
        raise _reshape_error(x, wanted)
    return _merged(x, shape)


def _divide_numbers(shape: Shape, wanted: Shape) -> Shape | None:
    """The shape that is wanted, where its sizes fit under this Config: half a block and 2.

    A block may be split, or made of parts, if no tile is partial: parts of it have no masks.
    """
    ends = 0
    while ends < min(len(shape), len(wanted)) and shape[-1 - ends] == wanted[-1 - ends]:
        ends += 1
    starts = 0
    most = min(len(shape), len(wanted)) - ends
    while starts < most and shape[starts] == wanted[starts]:
        starts += 1
    own, new = shape[starts : len(shape) - ends], wanted[starts : len(wanted) - ends]
    sizes = [[known_sizes.config_size(dim) for dim in dims] for dims in (own, new)]
    if None in sizes[0] or None in sizes[1]:
        return None
    given, needed = (prod(size for size in part if size) for part in sizes)
    can_be = given == needed and all(map(known_sizes.has_full_tiles, (*own, *new)))
    return wanted if can_be else None


def _merged(x: TileValue, shape: Shape) -> TileValue:
    """Reshape; values made later with as many elements along an axis get the same axis."""
    merged = {_factors(dim): dim for dim in shape if len(dim.factors) > 1}
    current_tracer("reshape").merged_axes.update(merged)
    return emission.reshape(x, shape)


def transpose(x: TileValue, dim0: int, dim1: int) -> TileValue:
    """The value with two axes swapped."""
    rank = x.tile.rank
    order = list(range(rank))
    first, second = (resolve_axis(x, d, "transpose") for d in (dim0, dim1))
    order[first], order[second] = order[second], order[first]
    return emission.permute(x, tuple(order))


def reverse_axes(x: TileValue) -> TileValue:
    """``.T``/``.t()``: the axes in reverse order."""
    return emission.permute(x, tuple(reversed(range(x.tile.rank))))


def permute_axes(x: TileValue, *dims: Any) -> TileValue:
    """``permute``: the axes in the order given."""
    dims = emission.one_by_one(dims)
    order = tuple(resolve_axis(x, d, "permute") for d in dims)
    if sorted(order) != list(range(x.tile.rank)):
        raise invalid_value("permute", f"{list(dims)} is no permutation")
    return emission.permute(x, order)


def expand(x: TileValue, *sizes: Any) -> TileValue:
    """``expand``: -1 keeps a size."""
    sizes = emission.one_by_one(sizes)
    extra = len(sizes) - x.tile.rank
    shape = tuple(
        x.tile.shape[i - extra] if isinstance(size, int) and size == -1 else as_dim(size, "expand")
        for i, size in enumerate(sizes)
    )
    return emission.broadcast_to(x, shape)


def flatten(x: TileValue, start_dim: int = 0, end_dim: int = -1) -> TileValue:
    """Merge neighbouring axes into one."""
    first, last = (resolve_axis(x, d, "flatten") for d in (start_dim, end_dim))
    merged = prod(x.tile.shape[first : last + 1], start=ONE)
    return _merged(x, (*x.tile.shape[:first], merged, *x.tile.shape[last + 1 :]))


def unflatten(x: TileValue, dim: int, sizes: Any) -> TileValue:
    """Split one axis into several."""
    axis = resolve_axis(x, dim, "unflatten")
    kept = [size_of_dim(dim) for dim in x.tile.shape]
    return view(x, *kept[:axis], *sizes, *kept[axis + 1 :])


def move_axes(x: TileValue, source: Any, destination: Any) -> TileValue:
    """``movedim``: some axes to given places, the others in order."""
    rank = x.tile.rank
    given = [[d] if isinstance(d, int) else list(d) for d in (source, destination)]
    old, new = ([resolve_axis(x, d, "movedim") for d in dims] for dims in given)
    if len(old) != len(new) or len({*old}) < len(old) or len({*new}) < len(new):
        raise invalid_value("movedim", f"{source} cannot go to {destination}")
    others = iter(axis for axis in range(rank) if axis not in old)
    placed = dict(zip(new, old))
    return emission.permute(
        x, tuple(placed[i] if i in placed else next(others) for i in range(rank))
    )


SHAPES: dict[str, emission.Rule] = {
    "unsqueeze": unsqueeze, "squeeze": squeeze, "view": view,
    "reshape": view,
    "transpose": transpose, "swapaxes": transpose, "swapdims": transpose, "permute": permute_axes,
    "t": reverse_axes, "T": reverse_axes, "mT": lambda x: transpose(x, -2, -1),
    "expand": expand, "broadcast_to": expand, "flatten": flatten, "ravel": flatten,
    "unflatten": unflatten, "movedim": move_axes, "moveaxis": move_axes,
    "expand_as": lambda x, other: emission.broadcast_to(x, emission.as_tile(other).tile.shape),
    "view_as": lambda x, other: view(x, other.shape),
    "reshape_as": lambda x, other: view(x, other.shape),
}  # fmt: skip


def divide_axes(shape: Shape, wanted: Sequence[Dim | None]) -> Shape | None:
    """The dimensions of ``shape`` reinterpreted as ``wanted``; None stands for what is left.

    The result's dimensions have their factors in the order of ``shape``'s. No result where the
    numbers of elements differ or a tile axis would have to be split.
    """
    if [*shape] == [*wanted]:
        return shape
    found = _divide(shape, wanted)
    return _divide_nothing(shape, wanted) if found is None else found


def _divide_nothing(shape: Shape, wanted: Sequence[Dim | None]) -> Shape | None:
    """A shape without elements, as any other one without; the rest must be 0 to make it so."""
    given = [dim for dim in wanted if dim is not None]
    is_empty = any(0 in dim.factors for dim in given)
    if not any(0 in dim.factors for dim in shape) or is_empty == (None in wanted):
        return None
    return tuple(Dim.of(0) if dim is None else dim for dim in wanted)


def _divide(shape: Shape, wanted: Sequence[Dim | None]) -> Shape | None:
    missing = wanted.index(None) if None in wanted else len(wanted)
    front = _Factors(shape)
    before = [front.take(dim) for dim in wanted[:missing] if dim is not None]
    back = _Factors(tuple(reversed([Dim(tuple(reversed(d.factors))) for d in front.rest()])))
    after = [back.take(dim) for dim in reversed(wanted[missing + 1 :]) if dim is not None]
    left = [Dim(tuple(reversed(d.factors))) for d in reversed(back.rest())]
    found = [*before]
    if missing < len(wanted):
        found.append(prod(left, start=ONE))
    elif left:
        return None
    found.extend(None if dim is None else Dim(dim.factors[::-1]) for dim in reversed(after))
    complete = tuple(dim for dim in found if dim is not None)
    return complete if len(complete) == len(found) else None


class _Factors:
    """The factors of a shape, taken from the front. Neighbouring constants count as one."""

    def __init__(self, shape: Shape) -> None:
        self._left = list(prod(shape, start=ONE).factors)

    def rest(self) -> Shape:
        """What was not taken."""
        return tuple(Dim.of(factor) for factor in self._left)

    def take(self, dim: Dim) -> Dim | None:
        """The dimension of these factors at the front, in their order there."""
        symbols = list(dim.symbols)
        constant = prod(factor for factor in dim.factors if isinstance(factor, int))
        taken = ONE
        while symbols or constant != 1:
            factor = self._left[0] if self._left else None
            if isinstance(factor, str) and factor in symbols:
                symbols.remove(factor)
                taken = taken * Dim.of(self._left.pop(0))
            elif isinstance(factor, int) and constant != 1:
                shared = gcd(factor, constant)
                if shared not in (factor, constant) or not (shared or factor == constant):
                    return None
                taken = taken * Dim.of(shared)
                constant = constant // shared if shared else 1
                rest = factor // shared if shared else 1
                self._left[:1] = [] if rest == 1 else [rest]
            else:
                return None
        return taken
