"""The vocabulary of rules: shapes align as torch's do, or by the identity of tile axes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.frontend.traced import open_tracer
from tilesmith import exc
from tilesmith.dtypes import BOOL, F32, F64, I8, I32, I64, U8, DType
from tilesmith.frontend.tracing.emission import (
    apply,
    as_tile,
    broadcast_shapes,
    broadcast_to,
    cast,
    full,
    number_dtype,
    one_by_one,
    positions_in,
    reduce,
    reinterpret,
    take_range,
)
from tilesmith.frontend.tracing.tracer import Tracer
from tilesmith.frontend.tracing.values import TileValue
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.types import Dim, Shape


@pytest.fixture(autouse=True)
def tracer() -> Iterator[Tracer]:
    with open_tracer() as opened:
        opened.new_block("t", slot=0)
        opened.new_block("u", slot=1)
        opened.new_block("v", fixed=16)
        yield opened


def shape(text: str) -> Shape:
    return tuple(Dim.of(int(part) if part.isdigit() else part) for part in text.split())


def value(text: str, dtype: DType = F32) -> TileValue:
    return full(0, dtype, shape(text))


@pytest.mark.parametrize(
    ("given", "dtype", "held"),
    [(-3, U8, 253), (256, U8, 0), (200, I8, -56), (-3, I8, -3), (2, F32, 2.0), (3, BOOL, True)],
)
def test_a_constant_is_a_number_of_its_type(
    tracer: Tracer, given: int, dtype: DType, held: float
) -> None:
    """Triton refuses negative numbers beside bytes, and all that the other type does not hold."""
    full(given, dtype)
    (op,) = tracer.take_region(()).ops
    assert isinstance(op, Full)
    assert op.value == held
    assert type(op.value) is type(held)


def names_of(tracer: Tracer) -> list[str]:
    return [op.name for op in tracer.take_region(()).ops]


@pytest.mark.parametrize(
    ("operands", "result"),
    [
        (["t u", "u"], "t u"),
        (["t u", "t 1"], "t u"),
        (["t u", "t"], "t u"),
        (["t u v", "t u"], "t u v"),
        (["5 1", "3"], "5 3"),
        (["t v", "16"], "t v"),
        (["", "t"], "t"),
    ],
)
def test_operands_align_to_the_right_or_by_their_axes(operands: list[str], result: str) -> None:
    values = [value(text) for text in operands]
    assert broadcast_shapes(values) == shape(result)
    assert all(broadcast_to(v, shape(result)).tile.shape == shape(result) for v in values)


@pytest.mark.parametrize("operands", [["t", "u"], ["t u", "v"], ["5", "3"], ["t 5", "t"]])
def test_other_shapes_do_not_match(operands: list[str]) -> None:
    if operands == ["t 5", "t"]:
        # A sum lost an axis: which one its places stand for is not known by name.
        reduced = reduce(value("t 7"), 1, ReduceKind.SUM)
        with pytest.raises(exc.ShapeMismatch):
            broadcast_shapes([value("t 5"), reduced])
        return
    with pytest.raises(exc.ShapeMismatch):
        broadcast_shapes([value(text) for text in operands])


def test_nothing_is_emitted_where_nothing_changes(tracer: Tracer) -> None:
    x = value("t 1")
    assert cast(x, F32) is x
    assert broadcast_to(x, x.tile.shape) is x
    assert reinterpret(x, F32) is x
    assert take_range(value("t 6"), 1, range(6)).tile.shape == shape("t 6")
    assert names_of(tracer) == ["full", "full"]


def test_numbers_take_the_type_of_the_first_tile_and_a_condition_keeps_its_own(
    tracer: Tracer,
) -> None:
    assert apply("add", 1, value("t", F64)).tile.dtype is F64
    assert apply("where", value("t", BOOL), 1.5, value("t"), dtype=F32).tile.dtype is F32
    assert apply("lt", value("t"), 0.0).tile.dtype is BOOL
    assert "cast" not in names_of(tracer)


@pytest.mark.parametrize(
    ("number", "dtype"), [(True, BOOL), (1.5, F32), (2**31 - 1, I32), (2**31, I64), (-(2**31), I32)]
)
def test_bare_numbers_take_the_smallest_type_that_holds_them(number: float, dtype: DType) -> None:
    assert number_dtype(number) is dtype
    assert as_tile(number).tile.dtype is dtype


@pytest.mark.parametrize(
    ("picked", "ops"),
    [
        (range(4, 8), ["full", "reshape", "select"]),
        (range(3, 4), ["full", "select", "expand_dims"]),
        (range(0), ["full", "full"]),
        (range(1, 7, 2), ["full", "arange", "expand_dims", "full", "expand_dims", "broadcast"]),
    ],
)
def test_ranges_of_an_axis_are_taken_in_the_cheapest_way(
    tracer: Tracer, picked: range, ops: list[str]
) -> None:
    found = take_range(value("t 8"), 1, picked)
    assert found.tile.shape == (Dim.of("t"), Dim.of(len(picked)))
    assert names_of(tracer)[: len(ops)] == ops


def test_positions_count_along_one_axis_only() -> None:
    assert positions_in(shape("t 5 u"), 1).tile.shape == shape("1 5 1")


def test_sizes_may_come_one_by_one_or_as_one_sequence() -> None:
    assert one_by_one((1, 2)) == one_by_one(([1, 2],)) == one_by_one(((1, 2),)) == (1, 2)
    assert one_by_one(()) == ()
