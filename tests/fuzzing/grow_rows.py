"""Grows programs with long rows and with products, whose work programs of a GPU may share.

These are the kernels that have other forms (``structure`` in a config): rows in parts, sums in
parts, values exchanged between programs, operands converted before. Programs of ``grow`` have none,
as their sizes are too small or vary.
"""

from __future__ import annotations

import torch

from tests.fuzzing.block_statements import TileLoop
from tests.fuzzing.choices import Choices, chance, pick
from tests.fuzzing.grow import unused
from tests.fuzzing.grow_statements import grow_compute, grow_reduction, grow_store
from tests.fuzzing.program import Grown, Outer, Program, Value
from tests.fuzzing.scope import Scope, Workshop
from tests.fuzzing.statements import Compute, Create, Load, Position, Product, Reduce

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
KEPT_STORES = 2
LONG_ROWS = (2048, 2051, 2560, 3000, 4096)
FEW = (1, 2, 3, 5, 8)
ROWS = (16, 1, 17, 33, 64, 100)
COLUMNS = (64, 128, 100, 192, 256, 300)
STEPS = (32, 16, 40, 100, 128)
LONG_STEPS = (1024, 1100, 2048)
NARROW = (torch.int8, torch.float8_e4m3fn, torch.uint8, torch.int16, torch.float8_e5m2)


def grow_rows(choices: Choices) -> Program:
    """A program of static sizes; which kind is the first decision."""
    grow = pick(choices, (_product_rows, _loaded_rows, _tiled_product, _long_product))
    return grow(choices)


def _shop(choices: Choices, rows: int, columns: int, steps: int) -> Workshop:
    sizes = {"M": rows, "N": columns, "K": steps, "G": 1}
    return Workshop(choices, sizes, pick(choices, ("integers", "numbers")), is_static=True)


def _finished(shop: Workshop, scope: Scope, axes: tuple[str, ...], body: Grown) -> Program:
    """The program whose only loop has these statements, and stores of what is left over."""
    values = unused(scope.values, body)[-KEPT_STORES:] or scope.values[-1:]
    for value in values:
        body += grow_store(shop, scope, value)
    listed = tuple((axis, scope.tiles[axis], 0, 0) for axis in axes)
    loop = Outer("tile", listed, None, tuple(body))
    tensors = tuple(shop.tensors)
    return Program(shop.sizes, tensors, (), (loop,), True, shop.choices.below(1000))


def _scope(shop: Workshop, *sizes: str) -> tuple[Scope, tuple[str, ...]]:
    scope = Scope()
    axes = tuple(shop.name("t") for _ in sizes)
    scope.tiles |= dict(zip(axes, sizes))
    scope.own = scope.programs = axes
    return scope, axes


def _between(shop: Workshop, scope: Scope, most: int) -> Grown:
    grown: Grown = []
    for _ in range(shop.choices.below(most + 1)):
        grown += grow_compute(shop, scope)
    return grown


def _reduced(shop: Workshop, scope: Scope, value: Value, *, keeps: bool) -> Grown:
    """A reduction of the rows of a value, and something made of both if elements are kept."""
    kind = pick(shop.choices, ("sum", "amax", "mean", "amin", "argmax"))
    dtype = torch.int64 if kind == "argmax" else value.dtype
    result = scope.add(shop.value(dtype, value.axes[:1]))
    grown: Grown = [Reduce(result, kind, value, 1)]
    if keeps and kind != "argmax" and chance(shop.choices, 80):
        function = pick(shop.choices, ("sub", "mul", "add", "maximum"))
        made = scope.add(shop.value(value.dtype, value.axes))
        grown.append(Compute(made, function, (value, result), value.dtype))
    return grown


def _row_work(shop: Workshop, scope: Scope, first: Value) -> Grown:
    """Values of rows, reduced once or twice, with functions between.

    Only what was reduced is stored where elements are not kept.
    """
    keeps = chance(shop.choices, 60)
    grown = _between(shop, scope, 2)
    for _ in range(1 + (shop.choices.below(5) < 2)):
        wide = [v for v in scope.values if v.axes == first.axes and v.dtype == first.dtype]
        grown += [*_reduced(shop, scope, wide[-1], keeps=keeps), *_between(shop, scope, keeps)]
    if keeps:
        return [*grown, *(grow_reduction(shop, scope) if chance(shop.choices, 30) else [])]
    scope.values = [value for value in scope.values if value.axes != first.axes]
    return [*grown, *_between(shop, scope, 1)]


def _loaded_rows(choices: Choices) -> Program:
    """Few long rows that are loaded."""
    shop = _shop(choices, pick(choices, FEW), pick(choices, LONG_ROWS), 4)
    scope, (rows,) = _scope(shop, "M")
    body: Grown = []
    loaded: list[Value] = []
    for _ in range(1 + choices.below(2)):
        spec = shop.new_input(("M", "N"), pick(choices, FLOATS))
        loaded.append(scope.add(shop.value(spec.dtype, (rows, "N"))))
        body.append(Load(loaded[-1], spec.name, (Position("tile", rows), Position("full"))))
    value = loaded[-1]
    if value.dtype != torch.float32:
        value = scope.add(shop.value(torch.float32, value.axes))
        body.append(Compute(value, "to_torch.float32", (loaded[-1],), torch.float32))
    return _finished(shop, scope, (rows,), [*body, *_row_work(shop, scope, value)])


def _factors(shop: Workshop, dtype: torch.dtype, axes: tuple[str, str, str], scope: Scope) -> Grown:
    """Both operands' loads; the right one may be converted from a narrow type, or both."""
    choices = shop.choices
    row, inner, column = axes
    narrow = pick(
        choices, ((False, False), (False, True), (False, False), (True, chance(choices, 50)))
    )
    grown: Grown = []
    for pair, is_narrow in zip(((row, inner), (inner, column)), narrow):
        own = pick(choices, NARROW) if is_narrow else dtype
        spec = shop.new_input(tuple(scope.tiles.get(axis, axis) for axis in pair), own)
        value = shop.value(own, pair)
        positions = (
            Position("tile", axis) if axis in scope.tiles else Position("full") for axis in pair
        )
        grown.append(Load(value, spec.name, tuple(positions)))
        if own != dtype:
            grown.append(Compute(shop.value(dtype, pair), f"to_{dtype}", (value,), dtype))
    return grown


def _product(shop: Workshop, scope: Scope, row: str, column: str) -> tuple[Value, Grown]:
    """A product over ``K``, in a loop, of fp32."""
    choices = shop.choices
    dtype = pick(choices, (torch.bfloat16, torch.float16, torch.float32))
    inner, step = scope.inner(), shop.name("u")
    inner.tiles[step] = "K"
    loads = _factors(shop, dtype, (row, step, column), inner)
    results = [x.result for x in loads if isinstance(x, (Load, Compute))]
    left, right = (x for x in results if x.dtype == dtype)
    total = scope.add(shop.value(torch.float32, (row, column)))
    shape = ", ".join(axis if axis in scope.tiles else str(shop.sizes[axis]) for axis in total.axes)
    form = pick(choices, ("addmm", "acc", "plus"))
    added = Product(total, form, left, right, is_added=True)
    return total, [Create(total, "0", shape), TileLoop(step, "0", "K", (*loads, added))]


def _product_rows(choices: Choices) -> Program:
    """A product whose rows are reduced."""
    shop = _shop(choices, pick(choices, ROWS), pick(choices, COLUMNS), pick(choices, STEPS))
    scope, (rows,) = _scope(shop, "M")
    total, body = _product(shop, scope, rows, "N")
    return _finished(shop, scope, (rows,), [*body, *_row_work(shop, scope, total)])


def _long_product(choices: Choices) -> Program:
    """A long product with few tiles."""
    shop = _shop(choices, pick(choices, (*FEW, 16)), pick(choices, (*FEW, 16)), 1)
    shop.sizes["K"] = pick(choices, LONG_STEPS)
    scope, axes = _scope(shop, "M", "N")
    _, body = _product(shop, scope, *axes)
    return _finished(shop, scope, axes, [*body, *_between(shop, scope, 2)])


def _tiled_product(choices: Choices) -> Program:
    """A product in tiles, as many matrices have."""
    shop = _shop(choices, pick(choices, ROWS), pick(choices, COLUMNS), pick(choices, STEPS))
    scope, axes = _scope(shop, "M", "N")
    _, body = _product(shop, scope, *axes)
    return _finished(shop, scope, axes, [*body, *_between(shop, scope, 2)])
