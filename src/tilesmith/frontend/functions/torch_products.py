"""Torch's products of matrices and vectors; ``torch.einsum`` of two operands."""

from __future__ import annotations

import re
from functools import partial
from functools import reduce as fold
from operator import mul
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.dtypes import DType
from tilesmith.frontend.functions.elementwise import add
from tilesmith.frontend.functions.matmul import mismatch, product
from tilesmith.frontend.functions.shape import reverse_axes, transpose
from tilesmith.frontend.refusals import unsupported_argument
from tilesmith.frontend.tracing.emission import (
    Rule,
    align_shapes,
    apply,
    as_tile,
    broadcast_shapes,
    broadcast_to,
    cast,
    expand_dims,
    one_by_one,
    permute,
    positions_in,
    reduce,
    reshape,
    select,
    unify_dims,
)
from tilesmith.frontend.tracing.values import TileValue, shape_text
from tilesmith.interpreter.torch_dtypes import from_torch, to_torch
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.types import ONE, Dim, Shape


def same_dtype(name: str, lhs: TileValue, rhs: TileValue) -> DType:
    """The element type of both operands, as torch demands."""
    if lhs.tile.dtype != rhs.tile.dtype:
        raise unsupported_argument(f"torch.{name}", f"dtypes {lhs.dtype} and {rhs.dtype}")
    return lhs.tile.dtype


def sum_of_products(name: str, lhs: TileValue, rhs: TileValue, axis: int) -> TileValue:
    """``sum(lhs * rhs)`` along an axis, accumulated in fp32 and rounded once."""
    dtype = same_dtype(name, lhs, rhs)
    wide = dtype.computed
    lhs, rhs = cast(lhs, wide), cast(rhs, wide)
    return cast(reduce(apply("mul", lhs, rhs), axis, ReduceKind.SUM), dtype)


def dot_of_vectors(lhs: Any, rhs: Any, *, name: str) -> TileValue:
    """``torch.dot``, ``vdot``: of two vectors."""
    lhs, rhs = as_tile(lhs), as_tile(rhs)
    if lhs.tile.rank != 1 or rhs.tile.rank != 1:
        raise mismatch(lhs, rhs, f"torch.{name}")
    _check_inner(lhs, rhs, -1, name)
    return sum_of_products(name, lhs, rhs, 0)


def _check_inner(lhs: TileValue, rhs: TileValue, axis: int, name: str) -> None:
    left, right = lhs.tile.shape[-1], rhs.tile.shape[axis]
    if unify_dims(left, right) is None or left.is_one != right.is_one:
        raise mismatch(lhs, rhs, f"torch.{name}")


def matrix_vector(matrix: Any, vector: Any, *, name: str) -> TileValue:
    """``torch.mv``: ``[..., m, k] @ [k]``."""
    matrix, vector = as_tile(matrix), as_tile(vector)
    if matrix.tile.rank < 2 or vector.tile.rank != 1:
        raise mismatch(matrix, vector, f"torch.{name}")
    _check_inner(matrix, vector, -1, name)
    lead = tuple(range(matrix.tile.rank - 1))
    return sum_of_products(name, matrix, expand_dims(vector, lead), matrix.tile.rank - 1)


def outer(lhs: Any, rhs: Any) -> TileValue:
    """``torch.outer``: every product of two vectors' elements."""
    lhs, rhs = as_tile(lhs), as_tile(rhs)
    if lhs.tile.rank != 1 or rhs.tile.rank != 1:
        raise mismatch(lhs, rhs, "torch.outer")
    dtype = same_dtype("outer", lhs, rhs)
    return apply("mul", expand_dims(lhs, (1,)), expand_dims(rhs, (0,)), dtype=dtype)


def vecdot(x: Any, y: Any, *, dim: int = -1) -> TileValue:
    """``torch.linalg.vecdot``: sums of products along one axis."""
    lhs, rhs = as_tile(x), as_tile(y)
    shape = broadcast_shapes([lhs, rhs])
    if not -len(shape) <= dim < len(shape):
        raise mismatch(lhs, rhs, "torch.linalg.vecdot")
    lhs, rhs = broadcast_to(lhs, shape), broadcast_to(rhs, shape)
    return sum_of_products("linalg.vecdot", lhs, rhs, dim % len(shape))


def matrix_product(
    lhs: Any, rhs: Any, out_dtype: torch.dtype | None = None, *, name: str
) -> TileValue:
    """``mm``, ``bmm``: accumulated in fp32, rounded to torch's result type."""
    lhs, rhs = as_tile(lhs), as_tile(rhs)
    dtype = same_dtype(name, lhs, rhs)
    result = dtype if out_dtype is None else from_torch(out_dtype)
    return product(lhs, rhs, f"torch.{name}", dtype=result)


def matmul(lhs: Any, rhs: Any, out_dtype: torch.dtype | None = None) -> TileValue:
    """``torch.matmul``, ``@``: a vector stands for one row or one column."""
    lhs, rhs = as_tile(lhs), as_tile(rhs)
    if lhs.tile.rank == 1 and rhs.tile.rank == 1:
        return dot_of_vectors(lhs, rhs, name="matmul")
    if rhs.tile.rank == 1:
        return matrix_vector(lhs, rhs, name="matmul")
    if lhs.tile.rank == 1:
        _check_inner(lhs, rhs, -2, "matmul")
        rank = rhs.tile.rank
        spread = expand_dims(lhs, tuple(axis for axis in range(rank) if axis != rank - 2))
        return sum_of_products("matmul", spread, rhs, rank - 2)
    if max(lhs.tile.rank, rhs.tile.rank) > 3 or lhs.tile.rank != rhs.tile.rank:
        return _in_one_batch(lhs, rhs, out_dtype)
    return matrix_product(lhs, rhs, out_dtype, name="matmul")


def _in_one_batch(lhs: TileValue, rhs: TileValue, out_dtype: torch.dtype | None) -> TileValue:
    """Matrices along several axes, broadcast as torch does, as one batch."""
    batches = [operand.tile.shape[:-2] for operand in (lhs, rhs)]
    shared = align_shapes(batches)
    if shared is None:
        raise errors.DotBatchDimensionMismatch(
            left=shape_text(batches[0]), right=shape_text(batches[1])
        )
    whole = fold(mul, shared, ONE)

    def in_batch(operand: TileValue) -> TileValue:
        matrix = operand.tile.shape[-2:]
        return reshape(broadcast_to(operand, (*shared, *matrix)), (whole, *matrix))

    made = matrix_product(in_batch(lhs), in_batch(rhs), out_dtype, name="matmul")
    return reshape(made, (*shared, *made.tile.shape[1:]))


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> TileValue:
    """``F.scaled_dot_product_attention`` of whole rows: scores and weights in fp32."""
    name = "nn.functional.scaled_dot_product_attention"
    if dropout_p or options.get("enable_gqa"):
        argument = "dropout_p" if dropout_p else "enable_gqa"
        raise unsupported_argument(f"torch.{name}", f"{argument}=")
    query, key, value = map(as_tile, (query, key, value))
    dtype = same_dtype(name, query, key)
    wide = dtype.computed
    scale = options.get("scale")
    if scale is None:
        length = query.shape[-1]
        is_known = isinstance(length, int)
        scale = length**-0.5 if is_known else apply("rsqrt", as_tile(length, wide))
    scores = matmul(query, transpose(key, -2, -1), to_torch(wide)) * scale
    if is_causal:
        rows, columns = (positions_in(scores.tile.shape, scores.tile.rank + n) for n in (-2, -1))
        attn_mask = apply("ge", rows, columns)
    weights = scores.softmax(-1) if attn_mask is None else _weights(scores, as_tile(attn_mask))
    return matmul(cast(weights, dtype), value)


def _weights(scores: TileValue, mask: TileValue) -> TileValue:
    """Softmax of masked scores; a row that may see nothing gets zeros, as eager has it."""
    if mask.tile.dtype.is_bool:
        scores = select(mask, scores, float("-inf"))
    else:
        scores = apply("add", scores, cast(mask, scores.tile.dtype))
    is_blind = apply("eq", scores.amax(-1, keepdim=True), float("-inf"))
    return select(is_blind, 0.0, scores.softmax(-1))


def accumulated_product(
    acc: Any, lhs: Any, rhs: Any, *, beta: Any = 1, alpha: Any = 1, name: str
) -> TileValue:
    """``addmm``, ``baddbmm``: accumulated in the accumulator's type, one fused op."""
    if beta != 1 or alpha != 1:
        raise unsupported_argument(f"torch.{name}", "alpha or beta")
    acc, lhs, rhs = as_tile(acc), as_tile(lhs), as_tile(rhs)
    wide = cast(acc, acc.tile.dtype.computed)
    return cast(product(lhs, rhs, f"torch.{name}", acc=wide), acc.tile.dtype)


def linear(x: Any, weight: Any, bias: Any = None) -> TileValue:
    """``F.linear``: ``x @ weight.T + bias``."""
    x, weight = as_tile(x), reverse_axes(as_tile(weight))
    if x.tile.rank == 3:
        weight = expand_dims(weight, (0,))
    if bias is None:
        return matmul(x, weight)
    if x.tile.rank == 1:
        return add(matmul(x, weight), bias)
    # One rounding for the product and its bias.
    same_dtype("nn.functional.linear", x, as_tile(bias))
    return accumulated_product(bias, x, weight, name="nn.functional.linear")


MATMULS: dict[str, Rule] = {
    **{name: partial(matrix_product, name=name) for name in ("mm", "bmm")},
    **{name: partial(accumulated_product, name=name) for name in ("addmm", "baddbmm")},
    **{name: partial(dot_of_vectors, name=name) for name in ("dot", "vdot")},
    "mv": partial(matrix_vector, name="mv"), "matmul": matmul, "linear": linear, "outer": outer,
    "vecdot": vecdot, "linalg_vecdot": vecdot, "scaled_dot_product_attention": attention,
}  # fmt: skip


def einsum(equation: Any, *operands: Any) -> TileValue:
    """``torch.einsum`` of two operands, each letter at most once in each."""
    operands = one_by_one(operands)
    text = re.sub(r"\s", "", equation) if isinstance(equation, str) else ""
    match = re.fullmatch(r"([A-Za-z]*),([A-Za-z]*)(?:->([A-Za-z]*))?", text)
    if match is None or len(operands) != 2:
        raise _unsupported(equation)
    left, right, result = match.groups()
    if result is None:
        both = left + right
        result = "".join(sorted(letter for letter in both if both.count(letter) == 1))
    lhs, rhs = map(as_tile, operands)
    is_plain = all(len(set(letters)) == len(letters) for letters in (left, right, result))
    is_ranked = lhs.tile.rank == len(left) and rhs.tile.rank == len(right)
    if not is_plain or not is_ranked or not set(result) <= {*left, *right}:
        raise _unsupported(equation)
    return _Einsum(left, right, result).apply(lhs, rhs)


def _unsupported(equation: Any) -> errors.BaseError:
    return unsupported_argument("torch.einsum", f"the equation {equation!r} for these operands")


class _Einsum:
    """One equation: letters of batches, of rows, of columns, and contracted ones."""

    def __init__(self, left: str, right: str, result: str) -> None:
        self._left, self._right, self._result = left, right, result
        shared = [letter for letter in left if letter in right]
        self._batch = "".join(letter for letter in shared if letter in result)
        self._inner = "".join(letter for letter in shared if letter not in result)
        self._rows = "".join(c for c in left if c in result and c not in right)
        self._columns = "".join(c for c in right if c in result and c not in left)

    def apply(self, lhs: TileValue, rhs: TileValue) -> TileValue:
        dtype = same_dtype("einsum", lhs, rhs)
        left, lhs = _sum_unshared(self._left, lhs, self._right + self._result)
        right, rhs = _sum_unshared(self._right, rhs, self._left + self._result)
        sizes = self._sizes(left, lhs, right, rhs)
        if self._inner and self._rows and self._columns:
            lhs = _with_axes_in_order(left, lhs, self._batch + self._rows + self._inner)
            rhs = _with_axes_in_order(right, rhs, self._batch + self._inner + self._columns)
            found = cast(self._by_matrices(lhs, rhs, sizes), dtype)
            order = self._batch + self._rows + self._columns
        else:
            found, order = self._by_elements((left, lhs), (right, rhs), dtype)
        return permute(found, tuple(order.index(letter) for letter in self._result))

    def _sizes(self, left: str, lhs: TileValue, right: str, rhs: TileValue) -> dict[str, Dim]:
        sizes: dict[str, Dim] = {}
        for letter, dim in (*zip(left, lhs.tile.shape), *zip(right, rhs.tile.shape)):
            unified = unify_dims(sizes.get(letter, ONE), dim)
            if unified is None:
                raise mismatch(lhs, rhs, "torch.einsum")
            sizes[letter] = unified
        return sizes

    def _by_matrices(self, lhs: TileValue, rhs: TileValue, sizes: dict[str, Dim]) -> TileValue:
        def joint(letters: str) -> Dim:
            return fold(mul, (sizes[letter] for letter in letters), ONE)

        def shape(letters: str) -> Shape:
            return tuple(sizes[letter] for letter in letters)

        batch = (joint(self._batch),) if self._batch else ()
        rows, inner, columns = map(joint, (self._rows, self._inner, self._columns))
        lhs = broadcast_to(lhs, shape(self._batch + self._rows + self._inner))
        rhs = broadcast_to(rhs, shape(self._batch + self._inner + self._columns))
        lhs, rhs = reshape(lhs, (*batch, rows, inner)), reshape(rhs, (*batch, inner, columns))
        made = product(lhs, rhs, "torch.einsum")
        return reshape(made, shape(self._batch + self._rows + self._columns))

    def _by_elements(
        self, left: tuple[str, TileValue], right: tuple[str, TileValue], dtype: DType
    ) -> tuple[TileValue, str]:
        order = self._result + self._inner
        wide = dtype.computed
        parts: list[TileValue] = []
        for letters, value in (left, right):
            kept = "".join(letter for letter in order if letter in letters)
            missing = tuple(axis for axis, letter in enumerate(order) if letter not in letters)
            parts.append(
                expand_dims(cast(_with_axes_in_order(letters, value, kept), wide), missing)
            )
        found = apply("mul", *parts)
        for axis in reversed(range(len(self._result), len(order))):
            found = reduce(found, axis, ReduceKind.SUM)
        return cast(found, dtype), self._result


def _sum_unshared(letters: str, value: TileValue, wanted: str) -> tuple[str, TileValue]:
    """Letters that nothing else has are summed over first."""
    for axis in reversed(range(len(letters))):
        if letters[axis] not in wanted:
            dtype = value.tile.dtype
            wide = dtype.computed
            value = cast(reduce(cast(value, wide), axis, ReduceKind.SUM), dtype)
            letters = letters[:axis] + letters[axis + 1 :]
    return letters, value


def _with_axes_in_order(letters: str, value: TileValue, order: str) -> TileValue:
    return permute(value, tuple(letters.index(letter) for letter in order))
