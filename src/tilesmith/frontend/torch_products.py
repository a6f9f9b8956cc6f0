"""torch's products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilesmith.diagnostics import errors
from tilesmith.dtypes import F32, DType
from tilesmith.frontend.elementwise import add
from tilesmith.frontend.emission import (
    apply,
    as_tile,
    broadcast_shapes,
    broadcast_to,
    cast,
    expand_dims,
    reduce,
    unify_dims,
)
from tilesmith.frontend.matmul import mismatch, product
from tilesmith.frontend.shape import reverse_axes
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TileValue
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.ops.reduction import ReduceKind

Rule = Callable[..., Any]


def same_dtype(name: str, lhs: TileValue, rhs: TileValue) -> DType:
    """The element type of both operands, as torch demands."""
    if lhs.tile.dtype != rhs.tile.dtype:
        raise errors.UnsupportedTorchArgument(
            name=f"torch.{name}", argument=f"dtypes {lhs.dtype} and {rhs.dtype}", loc=locate()
        )
    return lhs.tile.dtype


def sum_of_products(name: str, lhs: TileValue, rhs: TileValue, axis: int) -> TileValue:
    """``sum(lhs * rhs)`` along an axis, accumulated in fp32 and rounded once."""
    dtype = same_dtype(name, lhs, rhs)
    wide = F32 if dtype.is_low_precision_float else dtype
    lhs, rhs = cast(lhs, wide), cast(rhs, wide)
    return cast(reduce(apply("mul", lhs, rhs), axis, ReduceKind.SUM), dtype)


def dot_of_vectors(name: str) -> Rule:
    """``torch.dot``, ``vdot``: of two vectors."""

    def rule(lhs: Any, rhs: Any) -> TileValue:
        lhs, rhs = as_tile(lhs), as_tile(rhs)
        if lhs.tile.rank != 1 or rhs.tile.rank != 1:
            raise mismatch(lhs, rhs, f"torch.{name}")
        _check_inner(lhs, rhs, -1, name)
        return sum_of_products(name, lhs, rhs, 0)

    return rule


def _check_inner(lhs: TileValue, rhs: TileValue, axis: int, name: str) -> None:
    left, right = lhs.tile.shape[-1], rhs.tile.shape[axis]
    if unify_dims(left, right) is None or left.is_one != right.is_one:
        raise mismatch(lhs, rhs, f"torch.{name}")


def mv(matrix: Any, vector: Any) -> TileValue:
    """``torch.mv``."""
    return matrix_vector("mv", as_tile(matrix), as_tile(vector))


def matrix_vector(name: str, matrix: TileValue, vector: TileValue) -> TileValue:
    """``[..., m, k] @ [k]``."""
    if matrix.tile.rank < 2 or vector.tile.rank != 1:
        raise mismatch(matrix, vector, f"torch.{name}")
    _check_inner(matrix, vector, -1, name)
    lead = tuple(range(matrix.tile.rank - 1))
    return sum_of_products(name, matrix, expand_dims(vector, lead), matrix.tile.rank - 1)


def vector_matrix(name: str, vector: TileValue, matrix: TileValue) -> TileValue:
    """``[k] @ [..., k, n]``."""
    _check_inner(vector, matrix, -2, name)
    rank = matrix.tile.rank
    spread = expand_dims(vector, tuple(axis for axis in range(rank) if axis != rank - 2))
    return sum_of_products(name, spread, matrix, rank - 2)


def outer(lhs: Any, rhs: Any) -> TileValue:
    """``torch.outer``."""
    lhs, rhs = as_tile(lhs), as_tile(rhs)
    if lhs.tile.rank != 1 or rhs.tile.rank != 1:
        raise mismatch(lhs, rhs, "torch.outer")
    dtype = same_dtype("outer", lhs, rhs)
    return apply("mul", expand_dims(lhs, (1,)), expand_dims(rhs, (0,)), dtype=dtype)


def vecdot(x: Any, y: Any, *, dim: int = -1) -> TileValue:
    """``torch.linalg.vecdot``."""
    lhs, rhs = as_tile(x), as_tile(y)
    shape = broadcast_shapes([lhs, rhs])
    if not -len(shape) <= dim < len(shape):
        raise mismatch(lhs, rhs, "torch.linalg.vecdot")
    lhs, rhs = broadcast_to(lhs, shape), broadcast_to(rhs, shape)
    return sum_of_products("linalg.vecdot", lhs, rhs, dim % len(shape))


def matrix_product(name: str) -> Rule:
    """``mm``, ``bmm``: accumulated in fp32, rounded to torch's result type."""

    def rule(lhs: Any, rhs: Any, out_dtype: torch.dtype | None = None) -> TileValue:
        lhs, rhs = as_tile(lhs), as_tile(rhs)
        dtype = same_dtype(name, lhs, rhs)
        result = dtype if out_dtype is None else from_torch(out_dtype)
        return product(lhs, rhs, f"torch.{name}", dtype=result)

    return rule


def matmul(lhs: Any, rhs: Any) -> TileValue:
    """``torch.matmul``, ``@``: a vector stands for one row or one column."""
    lhs, rhs = as_tile(lhs), as_tile(rhs)
    if lhs.tile.rank == 1 and rhs.tile.rank == 1:
        return dot_of_vectors("matmul")(lhs, rhs)
    if rhs.tile.rank == 1:
        return matrix_vector("matmul", lhs, rhs)
    if lhs.tile.rank == 1:
        return vector_matrix("matmul", lhs, rhs)
    return matrix_product("matmul")(lhs, rhs)


def accumulated_product(name: str) -> Rule:
    """``addmm``, ``baddbmm``: accumulated in the accumulator's type, one fused op."""

    def rule(acc: Any, lhs: Any, rhs: Any, *, beta: Any = 1, alpha: Any = 1) -> TileValue:
        if beta != 1 or alpha != 1:
            raise errors.UnsupportedTorchArgument(
                name=f"torch.{name}", argument="alpha or beta", loc=locate()
            )
        acc, lhs, rhs = as_tile(acc), as_tile(lhs), as_tile(rhs)
        if acc.tile.dtype.is_low_precision_float:
            wide = product(lhs, rhs, f"torch.{name}", acc=cast(acc, F32))
            return cast(wide, acc.tile.dtype)
        return product(lhs, rhs, f"torch.{name}", acc=acc)

    return rule


def linear(x: Any, weight: Any, bias: Any = None) -> TileValue:
    """``F.linear``."""
    x, weight = as_tile(x), reverse_axes(as_tile(weight))
    if x.tile.rank == 3:
        weight = expand_dims(weight, (0,))
    if bias is None:
        return matmul(x, weight)
    if x.tile.rank == 1:
        return add(matmul(x, weight), bias)
    # One rounding for the product and its bias.
    same_dtype("nn.functional.linear", x, as_tile(bias))
    return accumulated_product("nn.functional.linear")(bias, x, weight)


MATMULS: dict[str, Rule] = {
    "mm": matrix_product("mm"), "bmm": matrix_product("bmm"), "matmul": matmul,
    "addmm": accumulated_product("addmm"), "baddbmm": accumulated_product("baddbmm"),
    "linear": linear, "mv": mv, "dot": dot_of_vectors("dot"), "vdot": dot_of_vectors("vdot"),
    "outer": outer, "vecdot": vecdot, "linalg_vecdot": vecdot,
}  # fmt: skip
