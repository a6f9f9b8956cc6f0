"""Grows statements without blocks: loads, functions, reductions, products, stores."""

from __future__ import annotations

import math

import torch

from tests.fuzzing import pointwise
from tests.fuzzing.choices import chance, pick
from tests.fuzzing.grow_rearrangements import unmerged
from tests.fuzzing.helper_calls import FORMS, HelperCall
from tests.fuzzing.pointwise import (
    BOOLS,
    EIGHT_BITS,
    FUNCTIONS,
    INTEGERS,
    has_rule,
    result_dtype,
)
from tests.fuzzing.program import Grown, TensorSpec, Value
from tests.fuzzing.scope import OUTPUT_TYPES, Scope, Stored, Workshop
from tests.fuzzing.statements import (
    Compute,
    Create,
    Load,
    Operand,
    Position,
    Reduce,
    Scan,
    Store,
)

SMOOTH = ("add", "mul", "sub", "neg", "add", "mul", "to_torch.float32", "to_torch.float64")
MAX_RANK = 3
MAX_ELEMENTS = 40_000
LITERALS = ("2", "3", "1", "0.5", "-1", "4", "0")
MASKABLE = ("<", "!=", ">=")
FAMILIES: tuple[dict[str, pointwise.Function], ...] = (
    pointwise.ARITHMETIC,
    pointwise.ARITHMETIC,
    pointwise.OF_ONE,
    pointwise.CASTS,
    pointwise.COMPARISONS,
    pointwise.CHOICE,
    pointwise.LOGIC,
    pointwise.DIVISIONS,
    pointwise.ROUNDINGS,
)


def grow_load(shop: Workshop, scope: Scope) -> Grown:
    """A load of an input, whole dimensions where no tile fits."""
    # Nothing is left to take a second dimension of no elements by.
    inputs = [
        spec
        for spec in shop.inputs
        if all(shop.sizes[dim] or spec.dims.count(dim) == 1 for dim in map(str, spec.dims))
    ]
    # What was written before a barrier comes first, and is there twice.
    finished = [spec for spec in shop.finished if len({*spec.dims}) == len(spec.dims)]
    options = [*finished, *inputs, *finished]
    if not options:
        return []
    spec = pick(shop.choices, options)
    before: Grown = []
    positions: list[Position] = []
    axes: list[str] = []
    for dim in spec.dims:
        position, axis = _position(shop, scope, str(dim), axes, before)
        positions.append(position)
        axes += [axis] if axis else []
    if shop.elements(scope, tuple(axes)) > MAX_ELEMENTS:
        return []
    mask = find_mask(shop, scope, tuple(axes)) if axes and chance(shop.choices, 15) else None
    return [*before, *loaded(shop, scope, spec, tuple(positions), tuple(axes), mask)]


def _position(
    shop: Workshop, scope: Scope, dim: str, used: list[str], before: Grown
) -> tuple[Position, str]:
    """One index and the axis it gives, if any; loads of index vectors go to ``before``."""
    options: list[tuple[Position, str]] = []
    for tile, size in scope.tiles.items():
        if tile not in used and size == dim:
            options += [(Position("tile", tile), tile)] * 4
            options += [(Position(kind, tile, size=dim), tile) for kind in ("turned", "halved")]
    options += [
        (Position("number", name), "") for name, size in scope.counts.items() if size == dim
    ]
    if dim not in used:
        options.append((Position("full"), dim))
    if shop.sizes[dim]:
        options.append((Position("number", f"{dim} - 1"), ""))
        free = [tile for tile in scope.tiles if tile not in used]
        if free and chance(shop.choices, 15):
            return gather(shop, free[0], scope.tiles[free[0]], dim, before)
        if free and chance(shop.choices, 15):
            options += [(Position("wrapped", tile, size=dim), tile) for tile in free]
    return pick(shop.choices, options)


def gather(
    shop: Workshop, tile: str, size: str, limit: int | str, before: Grown
) -> tuple[Position, str]:
    """Indices loaded from a vector of their own."""
    spec = shop.new_index(size, limit)
    index = shop.value(spec.dtype, (tile,))
    before.append(Load(index, spec.name, (Position("tile", tile),)))
    return Position("gather", index.name), tile


def find_mask(shop: Workshop, scope: Scope, axes: tuple[str, ...]) -> Value | None:
    fitting = [v for v in scope.values if v.dtype in BOOLS and v.axes and set(v.axes) <= set(axes)]
    return pick(shop.choices, fitting) if fitting else None


def grow_shifted_load(shop: Workshop, scope: Scope) -> Grown:
    """Elements next to those of a tile, with a mask where there are none."""
    options = [
        (spec, tile)
        for spec in shop.inputs
        for tile, size in scope.tiles.items()
        if spec.dims == (size,) and shop.sizes[size]
    ]
    if not options:
        return []
    spec, tile = pick(shop.choices, options)
    offset = 1 + shop.choices.below(5)
    index = shop.value(torch.int32, (tile,))
    mask = shop.value(torch.bool, (tile,))
    limit = f"{scope.tiles[tile]} - {offset}"
    return [
        Create(index, None),
        Compute(mask, "<", (index, limit), torch.bool),
        *loaded(shop, scope, spec, (Position("shifted", tile, offset),), (tile,), mask),
    ]


def loaded(
    shop: Workshop,
    scope: Scope,
    spec: TensorSpec,
    positions: tuple[Position, ...],
    axes: tuple[str, ...],
    mask: Value | None = None,
) -> Grown:
    """A load of a tensor; what has eight bits is converted at once."""
    if spec.dtype not in EIGHT_BITS:
        return [Load(scope.add(shop.value(spec.dtype, axes)), spec.name, positions, mask)]
    narrow = shop.value(spec.dtype, axes)
    wide = pick(shop.choices, (torch.float32, torch.float16, torch.bfloat16))
    load = Load(narrow, spec.name, positions, mask)
    return [load, Compute(scope.add(shop.value(wide, axes)), f"to_{wide}", (narrow,), wide)]


def grow_index(shop: Workshop, scope: Scope) -> Grown:
    """The indices of a tile as a value."""
    if not scope.tiles:
        return []
    tile = pick(shop.choices, list(scope.tiles))
    return [Create(scope.add(shop.value(torch.int32, (tile,))), None)]


def grow_compute(shop: Workshop, scope: Scope) -> Grown:
    """A function of values and numbers."""
    found = _function(shop, scope, None)
    if found is None:
        return []
    function, operands, axes, dtype = found
    result = scope.add(shop.value(dtype, axes))
    if chance(shop.choices, 14):
        form = pick(shop.choices, FORMS)
        return [HelperCall(result, function, operands, dtype, shop.name("helper"), form)]
    return [Compute(result, function, operands, dtype)]


def grow_rebinding(shop: Workshop, scope: Scope) -> Grown:
    """A new value for a name that exists; its type and axes stay."""
    if not scope.rebindable:
        return []
    target = pick(shop.choices, scope.rebindable)
    found = _function(shop, scope, target)
    if found is None:
        return []
    function, operands, axes, dtype = found
    return [Compute(target, function, operands, dtype)] if axes == target.axes else []


FoundFunction = tuple[str, tuple[Operand, ...], tuple[str, ...], torch.dtype]


def _function(shop: Workshop, scope: Scope, first: Value | None) -> FoundFunction | None:
    names = list(SMOOTH if shop.is_smooth else pick(shop.choices, FAMILIES))
    name = pick(shop.choices, names)
    operands: list[Operand] = []
    for kinds in FUNCTIONS[name].kinds:
        operand = first if first is not None and first.dtype in kinds else None
        first = None if operand is not None else first
        operand = operand or _operand(shop, scope, kinds, operands)
        if operand is None:
            return None
        operands.append(operand)
    return _typed(shop, scope, name, operands)


def _typed(
    shop: Workshop, scope: Scope, name: str, operands: list[Operand]
) -> FoundFunction | None:
    """The axes and the type of the result, if there is one."""
    axes = common_axes(shop, scope, [x for x in operands if isinstance(x, Value)])
    if axes is None:
        return None
    dtype = result_dtype(FUNCTIONS[name].text, tuple(_sample(shop, x) for x in operands))
    if dtype is None or (dtype.is_floating_point and not has_rule(FUNCTIONS[name])):
        return None
    return name, tuple(operands), axes, dtype


def made(shop: Workshop, scope: Scope, name: str, operands: list[Operand]) -> Grown:
    """A new value by a function, if it takes these operands."""
    found = _typed(shop, scope, name, operands)
    if found is None:
        return []
    _, _, axes, dtype = found
    return [Compute(scope.add(shop.value(dtype, axes)), name, tuple(operands), dtype)]


def common_axes(shop: Workshop, scope: Scope, values: list[Value]) -> tuple[str, ...] | None:
    """The axes of values taken together, unless they do not fit together or become too many."""
    axes: tuple[str, ...] = ()
    for value in values:
        axes += tuple(axis for axis in value.axes if axis not in axes)
    parts = scope.parts(axes)
    if len(axes) > MAX_RANK or len({*parts}) < len(parts):
        return None
    if not shop.is_static and len(parts) > len(axes) and any(map(scope.is_whole, axes)):
        return None  # merged axes come apart again by sizes that are written out
    return axes if shop.elements(scope, axes) <= MAX_ELEMENTS else None


def _sample(shop: Workshop, operand: Operand) -> tuple[object, bool]:
    if isinstance(operand, Value):
        return operand.dtype, not operand.axes
    values = {scalar.name: scalar.value for scalar in shop.scalars}
    return type(values.get(operand, 0.5 if "." in operand else 1)), True


def _operand(
    shop: Workshop, scope: Scope, kinds: tuple[torch.dtype, ...], before: list[Operand]
) -> Operand | None:
    """One more operand, a number only after others; often of another type than those."""
    fitting = [value for value in reversed(scope.values) if value.dtype in kinds]
    types = [operand.dtype for operand in before if isinstance(operand, Value)]
    unlike = [value for value in fitting if value.dtype not in types]
    if types and unlike and chance(shop.choices, 40):
        fitting = unlike
    if before and kinds != BOOLS and (not fitting or chance(shop.choices, 25)):
        names = [scalar.name for scalar in shop.scalars]
        return pick(shop.choices, [*LITERALS, *names, *scope.counts])
    return pick(shop.choices, fitting) if fitting else None


def grow_reduction(shop: Workshop, scope: Scope) -> Grown:
    """One whole dimension reduced."""
    found = _whole_axis(shop, scope)
    return [] if found is None else reduction_of(shop, scope, *found)


def reduction_of(shop: Workshop, scope: Scope, value: Value, dim: int) -> Grown:
    """A reduction of a value along one whole dimension."""
    kinds = ["sum"]
    kinds += ["any", "all"] if value.dtype in INTEGERS + BOOLS else ["mean", "prod"]
    if shop.sizes[value.axes[dim]] and value.dtype not in BOOLS:
        kinds += ["amax", "amin", "argmax", "argmin"]
    kind = "sum" if shop.is_smooth else pick(shop.choices, kinds)
    dtype = getattr(torch, kind)(torch.ones([1], dtype=value.dtype), 0).dtype
    axes = value.axes[:dim] + value.axes[dim + 1 :]
    return [Reduce(scope.add(shop.value(dtype, axes)), kind, value, dim)]


def grow_scan(shop: Workshop, scope: Scope) -> Grown:
    """Running sums or products along a whole dimension."""
    found = _whole_axis(shop, scope)
    return [] if found is None or found[0].dtype in BOOLS else scan_of(shop, scope, *found)


def scan_of(shop: Workshop, scope: Scope, value: Value, dim: int) -> Grown:
    """A scan of a value along one whole dimension."""
    kind = pick(shop.choices, ("cumsum", "cumprod"))
    if chance(shop.choices, 50):
        result = scope.add(shop.value(value.dtype, value.axes))
        return [Scan(result, kind, value, dim, "hl", reverse=chance(shop.choices, 50))]
    dtype = getattr(torch, kind)(torch.ones([1], dtype=value.dtype), 0).dtype
    return [Scan(scope.add(shop.value(dtype, value.axes)), kind, value, dim)]


def _whole_axis(shop: Workshop, scope: Scope) -> tuple[Value, int] | None:
    options = scope.whole_axes()
    return pick(shop.choices, options) if options else None


def grow_store(shop: Workshop, scope: Scope, value: Value | None = None) -> Grown:
    """A store of a value to a tensor of its own, or once more to one stored before."""
    if value is None and not scope.values:
        return []
    if value is None:
        value = pick(shop.choices, list(reversed(scope.values)))
    if not scope.merged.keys().isdisjoint(value.axes):
        apart = shop.value(value.dtype, scope.parts(value.axes))
        return [unmerged(shop, scope, apart, value), *grow_store(shop, scope, apart)]
    if chance(shop.choices, 20):
        visible = {*scope.tiles, *scope.counts, *shop.sizes}
        needed = {*value.axes, *scope.own}
        again = [s for s in scope.stored if needed <= set(s.axes) <= visible]
        if again:
            stored = pick(shop.choices, again)
            return [_store_to(shop, scope, stored, value)]
    loose = [axis for axis in scope.counts if axis not in scope.own and chance(shop.choices, 50)]
    axes = [*scope.own, *loose, *(axis for axis in value.axes if axis not in scope.own)]
    if chance(shop.choices, 20):
        axes.reverse()
    dims = tuple(dim_of(scope, axis) for axis in axes)
    if math.prod(map(shop.length, dims)) > MAX_ELEMENTS:
        return []
    dtype = value.dtype if shop.is_smooth else pick(shop.choices, OUTPUT_TYPES) or value.dtype
    spec = shop.new_output(dims, dtype)
    is_shared = not spec.is_allocated and chance(shop.choices, 15)
    stored = Stored(spec, tuple(axes), shop.new_alias(spec) if is_shared else None)
    scope.stored.append(stored)
    return [_store_to(shop, scope, stored, value)]


def dim_of(scope: Scope, axis: str) -> str | int:
    return scope.counts.get(axis, scope.tiles.get(axis, axis))


def _store_to(shop: Workshop, scope: Scope, stored: Stored, value: Value) -> Store:
    stored = stored.through(shop.choices)
    positions = tuple(own_position(scope, axis) for axis in stored.axes)
    axes = tuple(axis for axis in stored.axes if axis not in scope.counts)
    mask = find_mask(shop, scope, axes) if chance(shop.choices, 20) else None
    return Store(stored.spec.name, positions, value, axes, mask)


def own_position(scope: Scope, axis: str) -> Position:
    """The index of an axis as it was stored."""
    if axis in scope.counts:
        return Position("number", axis)
    return Position("tile", axis) if axis in scope.tiles else Position("full")


def grow_reload(shop: Workshop, scope: Scope) -> Grown:
    """A load of what this program has stored, lanes of others included."""
    options = [s for s in scope.stored if set(scope.programs) <= set(s.axes)]
    if not options:
        return []
    stored = pick(shop.choices, options).through(shop.choices)
    positions: list[Position] = []
    axes: list[str] = []
    for axis, dim in zip(stored.axes, stored.spec.dims):
        if axis in scope.own:
            positions.append(own_position(scope, axis))
            axes += [axis] if axis in scope.tiles else []
        elif shop.length(dim) and (chance(shop.choices, 40) or not isinstance(dim, str)):
            last = f"{dim} - 1" if isinstance(dim, str) else str(dim - 1)
            positions.append(Position("number", last))
        elif isinstance(dim, str) and dim not in axes:
            positions.append(Position("full"))
            axes.append(dim)
        else:
            return []
    result = scope.add(shop.value(stored.spec.dtype, tuple(axes)))
    return [Load(result, stored.spec.name, tuple(positions))]
