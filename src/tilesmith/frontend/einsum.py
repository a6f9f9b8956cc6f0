"""``torch.einsum`` of two operands: one matrix product, or multiplying and summing."""

from __future__ import annotations

import re
from functools import reduce as fold
from operator import mul
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.dtypes import F32, DType
from tilesmith.frontend.emission import (
    apply,
    as_tile,
    broadcast_to,
    cast,
    expand_dims,
    permute,
    reduce,
    reshape,
    unify_dims,
)
from tilesmith.frontend.matmul import mismatch, product
from tilesmith.frontend.torch_products import same_dtype
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TileValue
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.types import ONE, Dim, Shape


def einsum(equation: Any, *operands: Any) -> TileValue:
    """``torch.einsum`` of two operands, each letter at most once in each."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
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
    return errors.UnsupportedTorchArgument(
        name="torch.einsum", argument=f"the equation {equation!r} for these operands", loc=locate()
    )


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
        left, lhs = _summed(self._left, lhs, self._right + self._result)
        right, rhs = _summed(self._right, rhs, self._left + self._result)
        sizes = self._sizes(left, lhs, right, rhs)
        if self._inner and self._rows and self._columns:
            lhs = _arranged(left, lhs, self._batch + self._rows + self._inner)
            rhs = _arranged(right, rhs, self._batch + self._inner + self._columns)
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
        wide = F32 if dtype.is_low_precision_float else dtype
        parts: list[TileValue] = []
        for letters, value in (left, right):
            kept = "".join(letter for letter in order if letter in letters)
            missing = tuple(axis for axis, letter in enumerate(order) if letter not in letters)
            parts.append(expand_dims(cast(_arranged(letters, value, kept), wide), missing))
        found = apply("mul", *parts)
        for axis in reversed(range(len(self._result), len(order))):
            found = reduce(found, axis, ReduceKind.SUM)
        return cast(found, dtype), self._result


def _summed(letters: str, value: TileValue, wanted: str) -> tuple[str, TileValue]:
    """Letters that nothing else has are summed over first."""
    for axis in reversed(range(len(letters))):
        if letters[axis] not in wanted:
            dtype = value.tile.dtype
            wide = F32 if dtype.is_low_precision_float else dtype
            value = cast(reduce(cast(value, wide), axis, ReduceKind.SUM), dtype)
            letters = letters[:axis] + letters[axis + 1 :]
    return letters, value


def _arranged(letters: str, value: TileValue, order: str) -> TileValue:
    return permute(value, tuple(letters.index(letter) for letter in order))
