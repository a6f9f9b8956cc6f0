"""Grows a random program from decisions: sizes, tensors, loops and their statements."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import torch

from tests.fuzzing.block_statements import Branch, Repeat, TileLoop, Until
from tests.fuzzing.bounded_sums import grow_bounded_sum
from tests.fuzzing.choices import Choices, chance, pick
from tests.fuzzing.draws import grow_draw
from tests.fuzzing.grow_combinations import grow_combination
from tests.fuzzing.grow_histories import grow_history, open_history, reopen
from tests.fuzzing.grow_memory import grow_atomic, grow_hostile_load, grow_ordered_store
from tests.fuzzing.grow_products import grow_matrices, grow_product
from tests.fuzzing.grow_rearrangements import grow_reshape, grow_sort
from tests.fuzzing.grow_rotations import grow_companions, grow_rotation
from tests.fuzzing.grow_statements import (
    grow_compute,
    grow_index,
    grow_load,
    grow_rebinding,
    grow_reduction,
    grow_reload,
    grow_scan,
    grow_shifted_load,
    grow_store,
)
from tests.fuzzing.grow_typed import grow_comparison, grow_typed, grow_typed_reduction
from tests.fuzzing.pointwise import BOOLS, EIGHT_BITS
from tests.fuzzing.program import (
    Grown,
    Outer,
    Program,
    Scalar,
    TensorSpec,
    Value,
    end_text,
    walk,
)
from tests.fuzzing.scope import Scope, Workshop
from tests.fuzzing.statements import Accumulate, Create, Load, Position, Product, Store

SIZES = (17, 16, 1, 2, 15, 33, 7, 0, 3, 64, 31, 70)
SMALL_SIZES = (5, 1, 4, 2, 7, 8, 16, 3)
GRID_SIZES = (3, 1, 2, 5, 0)
MAX_DEPTH = 2
MAX_STORES = 4
SCALARS = (3, 0.5, 2, -1, 1.5)
SIMPLE: tuple[Callable[[Workshop, Scope], Grown], ...] = (
    grow_compute, grow_reduction, grow_compute, grow_load, grow_compute, grow_reduction, grow_store,
    grow_index, grow_reload, grow_scan, grow_product, grow_atomic, grow_shifted_load,
    grow_combination, grow_compute, grow_reshape, grow_compute, grow_sort, grow_compute,
    grow_atomic, grow_hostile_load, grow_ordered_store, grow_bounded_sum, grow_typed, grow_history,
    grow_comparison, grow_typed_reduction, grow_typed, grow_history, grow_comparison, grow_draw,
    grow_reshape,
)  # fmt: skip
SMOOTH_STATEMENTS: tuple[Callable[[Workshop, Scope], Grown], ...] = (
    grow_compute, grow_load, grow_compute, grow_reduction, grow_compute, grow_product,
    grow_shifted_load, grow_hostile_load, grow_bounded_sum, grow_ordered_store, grow_store,
)  # fmt: skip
COMBINED = {
    "sum": "lambda a, b: a + b",
    "amax": "lambda a, b: torch.where(a > b, a, b)",
    "amin": "lambda a, b: torch.minimum(a, b)",
}


def grow_program(choices: Choices, *, is_smooth: bool = False) -> Program:
    """A program that kernels of the language can express, with inputs it is defined for.

    A smooth one has gradients that are whole numbers.
    """
    sizes = {"M": pick(choices, SIZES), "N": pick(choices, SIZES), "K": pick(choices, SMALL_SIZES)}
    sizes["G"] = pick(choices, GRID_SIZES)
    content = pick(choices, ("integers", "numbers"))
    content = "integers" if is_smooth else content
    shop = Workshop(choices, sizes, content, not chance(choices, 80))
    shop.is_smooth = is_smooth
    for _ in range(1 + choices.below(3)):
        rank = 1 + choices.below(3)
        dims = ["M", "N", "K", "G"]
        names = tuple(dims.pop(choices.below(len(dims))) for _ in range(rank))
        if math.prod(sizes[name] for name in names) <= 40_000:
            shop.new_input(names)
    if not shop.tensors:
        shop.new_input(("M",))
    if not is_smooth and chance(choices, 10):
        shop.new_alias(pick(choices, shop.tensors))
    for _ in range(choices.below(3)):
        value = pick(choices, SCALARS)
        is_constant = chance(choices, 30)
        value = int(value) if is_smooth else value
        shop.scalars.append(Scalar(shop.name("s"), value, is_constant))
    loops = [_outer(shop)]
    for _ in range(pick(choices, (0, 0, 0, 0, 0, 1, 1, 2))):
        has_barrier = not is_smooth and chance(choices, 60)
        if has_barrier:
            shop.finished = [spec for spec in shop.tensors if _is_readable(spec)]
        loops.append(replace(_outer(shop), is_after_barrier=has_barrier))
    tensors, scalars = tuple(shop.tensors), tuple(shop.scalars)
    return Program(sizes, tensors, scalars, tuple(loops), shop.is_static, choices.below(1000))


def _is_readable(spec: TensorSpec) -> bool:
    """Whether a later loop may load what an earlier one has written."""
    is_written = spec.is_output or spec.name.startswith("same")
    return is_written and spec.dims != () and all(isinstance(dim, str) for dim in spec.dims)


def _outer(shop: Workshop) -> Outer:
    choices = shop.choices
    kind = "grid" if chance(choices, 20) else "tile"
    names = ["G"] if kind == "grid" else [pick(choices, ("M", "N", "K"))]
    if chance(choices, 40):
        names.append(next(name for name in ("N", "M", "K") if name not in names))
    if kind == "grid" and len(names) == 2:
        names[1] = "K"
    scope = Scope()
    axes: list[tuple[str, str, int, int]] = []
    for size in names:
        axis = shop.name("t" if kind == "tile" else "i")
        axes.append((axis, size, *_bounds(shop, size)))
        (scope.tiles if kind == "tile" else scope.counts)[axis] = size
    scope.own = scope.programs = tuple(axis for axis, *_ in axes)
    fixed = pick(choices, (None, None, None, None, 16, 4)) if kind == "tile" else None
    if not shop.is_smooth and chance(choices, 25):
        open_history(shop, scope)
    if chance(choices, 50):
        reopen(shop, scope)
    body = [*grow_load(shop, scope), *grow_block(shop, scope, 0, 1 + choices.below(10))]
    if not scope.values:
        value = scope.add(shop.value(torch.int32, ()))
        body.append(Create(value, "1", ""))
    for value in unused(scope.values, body)[-MAX_STORES:] or scope.values[-1:]:
        body += grow_store(shop, scope, value)
    if not any(isinstance(statement, Store) for statement in walk(body)):
        value = scope.add(shop.value(torch.int32, ()))  # all else had too much to store
        body += [Create(value, "1", ""), *grow_store(shop, scope, value)]
    return Outer(kind, tuple(axes), fixed, tuple(body))


def unused(values: list[Value], body: Grown) -> list[Value]:
    """The values that nothing in a block is made of."""
    words = Counter(re.findall(r"\w+", "\n".join(line for x in body for line in x.lines())))
    return [value for value in values if words[value.name] == 1]


def _bounds(shop: Workshop, size: str) -> tuple[int, int]:
    """The first index, and how many are left out at the end."""
    if shop.sizes[size] < 4 or not chance(shop.choices, 20):
        return 0, 0
    return 1 + shop.choices.below(2), shop.choices.below(2)


def grow_block(shop: Workshop, scope: Scope, depth: int, count: int) -> Grown:
    """Statements one after the other."""
    grown: Grown = []
    for _ in range(count):
        if depth < MAX_DEPTH and chance(shop.choices, 22):
            grow = pick(shop.choices, (grow_tile_loop, grow_repeat, grow_branch, grow_while))
            grown += grow(shop, scope, depth + 1)
        else:
            simple = SMOOTH_STATEMENTS if shop.is_smooth else SIMPLE
            grown += pick(shop.choices, simple)(shop, scope)
    return grown


def grow_tile_loop(shop: Workshop, scope: Scope, depth: int) -> Grown:
    """A loop over tiles with accumulators."""
    size = pick(shop.choices, ("N", "K", "M"))
    axis = shop.name("u")
    inner = scope.inner()
    before: Grown = []
    begin, end = _loop_bounds(shop, scope, size, before)
    inner.tiles[axis] = size
    inner.own = (*scope.own, axis)
    inner.rebindable = []
    if chance(shop.choices, 30):
        begin, end = _same_tile(shop, inner, axis, begin, end)
    # What is added up over one tile again depends on its size.
    is_whole = not begin.endswith(".begin")
    body: Grown = []
    if is_whole and chance(shop.choices, 35):
        body += _product_loop(shop, scope, inner, axis, before)
    body += grow_load(shop, inner)
    body += grow_block(shop, inner, depth, 1 + shop.choices.below(3))
    if is_whole:
        body += _accumulate(shop, scope, inner, axis, before)
    for value in unused(inner.values, body)[-1:]:
        body += grow_store(shop, inner, value) if chance(shop.choices, 50) else []
    if not body:
        return []
    block_size = pick(shop.choices, (None, None, None, None, None, 8, 16))
    is_reversed = chance(shop.choices, 10)
    return [*before, TileLoop(axis, begin, end, tuple(body), block_size, is_reversed)]


def _loop_bounds(shop: Workshop, scope: Scope, size: str, before: Grown) -> tuple[str, str]:
    """A size, or numbers that tensors hold for each index of a grid (or for all programs)."""
    if not shop.sizes[size] or not chance(shop.choices, 30):
        begin, left = _bounds(shop, size)
        return str(begin), end_text(size, left)
    bounds: list[str] = []
    places = [(name, dim) for name, dim in scope.counts.items() if isinstance(dim, str)]
    places += [(f"{dim} - 1", dim) for dim in ("K", "M", "N") if shop.sizes[dim]]
    for _ in range(1 + shop.choices.below(2)):
        place, dim = pick(shop.choices, places)
        spec = shop.new_index(dim, f"{size} + 1")
        value = shop.value(spec.dtype, ())
        before.append(Load(value, spec.name, (Position("number", place),)))
        bounds.append(value.name)
    return (bounds[0], bounds[1]) if len(bounds) == 2 else ("0", bounds[0])


def _same_tile(shop: Workshop, inner: Scope, axis: str, begin: str, end: str) -> tuple[str, str]:
    """Once more over a tile that is there, in other steps, instead of that tile."""
    tiles = [tile for tile in inner.own if tile in inner.tiles and tile != axis]
    if not tiles:
        return begin, end
    tile = pick(shop.choices, tiles)
    inner.tiles[axis] = inner.tiles.pop(tile)
    inner.own = tuple(axis if own == tile else own for own in inner.own if own != axis)
    inner.programs = tuple(axis if own == tile else own for own in inner.programs)
    inner.values = [v for v in inner.values if tile not in inner.parts(v.axes)]
    inner.stored = []
    return f"{tile}.begin", f"{tile}.end"


def _accumulate(shop: Workshop, scope: Scope, inner: Scope, axis: str, before: Grown) -> Grown:
    options = [
        (v, dim)
        for v in reversed(inner.values)
        for dim, own in enumerate(v.axes)
        if _is_of_loop(inner, own, axis)
    ]
    grown: Grown = []
    for _ in range(1 + shop.choices.below(3)):
        if not options:
            break
        value, dim = pick(shop.choices, options)
        rest = value.axes[:dim] + value.axes[dim + 1 :]
        kind, dtype, start = _accumulator(shop, value)
        shape = _shape_text(shop, scope, rest)
        if shape is None:
            continue
        result = scope.add(shop.value(dtype, rest))
        before.append(Create(result, start, shape))
        grown.append(Accumulate(result, kind, value, dim, _combine(shop, kind, value, dtype)))
    return grown


def _is_of_loop(scope: Scope, own: str, axis: str) -> bool:
    """Whether all turns of the loop over ``axis`` together have the whole of an axis."""
    parts = scope.parts((own,))
    return axis in parts and all(part == axis or scope.is_whole(part) for part in parts)


def _combine(shop: Workshop, kind: str, value: Value, dtype: torch.dtype) -> str:
    # A sum of integers by hl.reduce has their type.
    is_same = kind != "sum" or value.dtype.is_floating_point or value.dtype == dtype
    return COMBINED.get(kind, "") if is_same and chance(shop.choices, 30) else ""


def _accumulator(shop: Workshop, value: Value) -> tuple[str, torch.dtype, str]:
    if value.dtype in BOOLS:
        return "any", torch.bool, "0"
    kind = "sum" if shop.is_smooth else pick(shop.choices, ("sum", "amax", "amin"))
    if kind != "sum":
        return kind, value.dtype, pick(shop.choices, ("-9", "9", "0"))
    floats = (torch.float32, torch.float64, value.dtype)
    types = floats if value.dtype.is_floating_point else (torch.int64, torch.int32)
    return kind, pick(shop.choices, types), pick(shop.choices, ("0", "2"))


def _shape_text(shop: Workshop, scope: Scope, axes: tuple[str, ...]) -> str | None:
    """The shape of a new tile, if sizes are known."""
    if not shop.is_static and any(axis not in scope.tiles for axis in axes):
        return None
    if any(axis not in scope.tiles and axis not in shop.sizes for axis in axes):
        return None  # an axis merged from several
    return ", ".join(axis if axis in scope.tiles else str(shop.sizes[axis]) for axis in axes)


def _product_loop(shop: Workshop, scope: Scope, inner: Scope, axis: str, before: Grown) -> Grown:
    loads = grow_matrices(shop, inner, axis)
    if not loads:
        return []
    left, right = (load.result for load in loads)
    axes = (left.axes[0], right.axes[1])
    shape = _shape_text(shop, scope, axes)
    if shape is None or axis in axes:
        return list(loads)
    is_integer = left.dtype == torch.int8
    is_plain = is_integer or left.dtype in EIGHT_BITS
    forms = ("acc", "plus") if is_plain else ("addmm", "acc", "plus")
    dtype = torch.int32 if is_integer else torch.float32
    result = scope.add(shop.value(dtype, axes))
    before.append(Create(result, pick(shop.choices, ("0", "1")), shape))
    return [*loads, Product(result, pick(shop.choices, forms), left, right, is_added=True)]


def _rebindings(shop: Workshop, scope: Scope, depth: int) -> Grown:
    body = grow_block(shop, scope, depth, shop.choices.below(3))
    for _ in range(1 + shop.choices.below(2)):
        body += grow_rebinding(shop, scope)
    if not shop.is_smooth and chance(shop.choices, 30):
        body += grow_history(shop, scope)
    return [*body, *(grow_rotation(shop, scope) if chance(shop.choices, 60) else [])]


def _before_block(shop: Workshop, scope: Scope) -> Grown:
    """Values to exchange with others in a block, and the history of a place to go on with."""
    grown = grow_companions(shop, scope)
    if not shop.is_smooth and chance(shop.choices, 20):
        grown += grow_history(shop, scope)
    return grown


def grow_repeat(shop: Workshop, scope: Scope, depth: int) -> Grown:
    """A loop over numbers that changes values."""
    choices = shop.choices
    index, head = shop.name("j"), pick(choices, ("range", "hl.grid", "hl.static_range"))
    names = [s.name for s in shop.scalars if isinstance(s.value, int) and s.value > 0]
    names = [] if head == "hl.static_range" else names
    options: list[tuple[str, str | int]] = [("3", 3), ("1", 1), ("0", 0)]
    options += [(name, _scalar(shop, name)) for name in names]
    if head != "hl.static_range":
        options.append(("G", "G"))
    text, count = pick(choices, options)
    before = _before_block(shop, scope)
    inner = scope.inner()
    inner.counts[index] = count
    body = _rebindings(shop, inner, depth)
    return [*before, Repeat(index, head, text, tuple(body))] if body else before


def _scalar(shop: Workshop, name: str) -> int:
    return next(int(s.value) for s in shop.scalars if s.name == name)


def grow_branch(shop: Workshop, scope: Scope, depth: int) -> Grown:
    """A branch on a number or a 0-d value."""
    numbers = [s.name for s in shop.scalars if isinstance(s.value, int)]
    scalars = [v for v in scope.values if not v.axes and not v.dtype.is_floating_point]
    options = [*reversed(scalars), *scope.counts, *numbers]
    scalars = [v for v in options if not isinstance(v, Value) or v.dtype not in BOOLS]
    if not scalars:
        return []
    left = pick(shop.choices, scalars)
    sign, right = pick(shop.choices, ("<", "==", ">=")), pick(shop.choices, ("1", "2", "0"))
    before = _before_block(shop, scope)
    body = _rebindings(shop, scope.inner(), depth)
    orelse = _rebindings(shop, scope.inner(), depth) if chance(shop.choices, 50) else []
    found = [Branch(left, sign, right, tuple(body), tuple(orelse))] if body else []
    return [*before, *found]


def grow_while(shop: Workshop, scope: Scope, depth: int) -> Grown:
    """A loop that counts by itself."""
    counter = shop.value(torch.int32, ())
    limits = [s.name for s in shop.scalars if isinstance(s.value, int)]
    limit = pick(shop.choices, ("3", "1", "0", *limits))
    before = _before_block(shop, scope)
    body = _rebindings(shop, scope.inner(), depth)
    found = [Create(counter, "0", ""), Until(counter, limit, tuple(body))] if body else []
    return [*before, *found]
