"""Torch functions that compare values with positions or with sorted values: one of all pairs.

Each costs as many comparisons as there are pairs, none of which touches memory.
"""

from __future__ import annotations

from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import I32, I64
from tilesmith.frontend.functions.promotion import common_dtype, compute_dtype
from tilesmith.frontend.functions.shape import resolve_axis
from tilesmith.frontend.refusals import invalid_kind, unsupported_argument
from tilesmith.frontend.tracing.emission import (
    Rule,
    apply,
    as_tile,
    cast,
    expand_dims,
    line,
    positions_in,
    with_dim,
)
from tilesmith.frontend.tracing.values import TileValue, shape_text
from tilesmith.ir.types import Dim


def one_hot(x: Any, num_classes: Any = -1) -> TileValue:
    """``F.one_hot``: int64, 1 at the class of each element along a new last axis."""
    x = _integers(x, "torch.nn.functional.one_hot")
    if isinstance(num_classes, bool) or not isinstance(num_classes, int) or num_classes < 1:
        raise errors.ShapeSpecializingCall(
            value="num_classes of torch.nn.functional.one_hot",
            fix="pass the number of classes: one_hot(x, num_classes=10)",
        )
    classes = line(Dim.of(num_classes))
    found = apply("eq", expand_dims(x, (x.tile.rank,)), cast(classes, x.tile.dtype))
    return cast(found, I64)


def _integers(x: Any, function: str) -> TileValue:
    if not isinstance(x, TileValue) or not x.tile.dtype.is_integer:
        found = x.dtype if isinstance(x, TileValue) else kind_of(x)
        raise invalid_kind(function, f"{found}, expected integers")
    return x


def searchsorted(
    sorted_sequence: Any,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> TileValue:
    """``torch.searchsorted``: how many elements of a sorted row come before each value."""
    if sorter is not None:
        raise unsupported_argument("torch.searchsorted", "sorter=")
    dtype = common_dtype(sorted_sequence, values)
    row, wanted = as_tile(sorted_sequence, dtype), as_tile(values, dtype)
    if row.tile.rank == 1:
        row = expand_dims(row, tuple(range(wanted.tile.rank)))
    elif row.tile.rank == wanted.tile.rank:
        row = expand_dims(row, (row.tile.rank - 1,))
    else:
        raise errors.ShapeMismatch(
            left=shape_text(row.tile.shape),
            right=shape_text(wanted.tile.shape),
            fix="pass one sorted row, or a row for each row of values",
        )
    # Not "less": a NaN among the values comes after all elements, as in eager.
    is_right = right or side == "right"
    beyond = apply("gt" if is_right else "ge", row, expand_dims(wanted, (wanted.tile.rank,)))
    before = cast(apply("not", beyond), I32)
    return cast(before.sum(-1), I32 if out_int32 else I64)


def bucketize(
    input: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False
) -> TileValue:
    """``torch.bucketize``: the bucket of each value between sorted boundaries."""
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def scatter_add(x: TileValue, dim: int, index: Any, src: Any) -> TileValue:
    """``torch.scatter_add``: each element of ``src`` is added at its position along ``dim``."""
    x, index, src = as_tile(x), _integers(index, "torch.scatter_add"), as_tile(src)
    axis = resolve_axis(x, dim, "scatter_add")
    _check_scattered(x, axis, index, src)
    wide = compute_dtype(x.tile.dtype)
    # A new axis in front of the one that is added up has the positions of the result.
    places = cast(expand_dims(positions_in(x.tile.shape, axis), (axis + 1,)), index.tile.dtype)
    hits = apply("eq", places, expand_dims(index, (axis,)))
    zero = 0.0 if wide.is_float else 0
    parts = apply("where", hits, expand_dims(cast(src, wide), (axis,)), zero, dtype=wide)
    total = apply("add", cast(x, wide), cast(parts.sum(axis + 1), wide))
    return cast(total, x.tile.dtype)


def _check_scattered(x: TileValue, axis: int, index: TileValue, src: TileValue) -> None:
    if src.tile.dtype != x.tile.dtype:
        given = f"src of {src.dtype} for a value of {x.dtype}"
        raise unsupported_argument("torch.scatter_add", given)
    # Torch allows shorter ones beside the axis too; whose other elements stay is then data.
    wanted = with_dim(x.tile.shape, axis, index.tile.shape[axis])
    if not index.tile.shape == src.tile.shape == wanted:
        raise errors.ShapeMismatch(
            left=shape_text(index.tile.shape),
            right=shape_text(src.tile.shape),
            note=f"both are added to a value of shape {shape_text(x.tile.shape)}",
            fix="give index and src one shape, which may differ from the value along `dim` only",
        )


LOOKUPS: dict[str, Rule] = {
    "one_hot": one_hot, "searchsorted": searchsorted, "bucketize": bucketize,
    "scatter_add": scatter_add,
}  # fmt: skip
