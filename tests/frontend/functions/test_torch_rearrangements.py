"""Functions that put elements elsewhere, against eager: bit by bit, on tiles that are partial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import integers, randn
from tests.host_backends import BACKENDS, on_backend
from tilesmith.frontend.functions.moved_elements import MOVES
from tilesmith.frontend.functions.rearrangement import REARRANGEMENTS
from tilesmith.frontend.functions.sorting import SORTS

backends = pytest.mark.parametrize("backend", BACKENDS)
CONFIG = helion.Config(block_sizes=[4])


@helion.kernel
def stored(x, out, fn):
    for t in hl.tile(x.size(0)):
        result = fn(x[t, :, :])
        if out.ndim == 1:
            out[t] = result
        elif out.ndim == 2:
            out[t, :] = result
        elif out.ndim == 3:
            out[t, :, :] = result
        else:
            out[t, :, :, :] = result


def tensor() -> torch.Tensor:
    x = randn(7, 6, 5).round(decimals=1)
    x[1, 2, 3], x[1, 2, 4] = float("nan"), -0.0
    x[2, :, 1], x[3, 3] = 0.0, -0.0
    x[5, 0, 0], x[5, 1, 0] = float("inf"), float("-inf")
    return x


def run(fn: Callable[..., Any], x: torch.Tensor, backend: str) -> tuple[torch.Tensor, torch.Tensor]:
    expected = fn(x)
    out = torch.empty_like(expected, memory_format=torch.contiguous_format)
    on_backend(stored, backend).bind((x, out, fn)).compile_config(CONFIG)(x, out, fn)
    return out, expected


def check(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    number = ~torch.isnan(expected)
    assert torch.equal(torch.signbit(actual[number]), torch.signbit(expected[number]))


def positions(v: Any) -> Any:
    """Positions from 0 to 4 along the last axis, made of the elements."""
    return (v.nan_to_num(0.0, 9.0, 9.0).abs() * 10).long() % 5


CALLS: dict[str, Callable[[Any], Any]] = {
    "stack": lambda v: torch.stack([v[:, 0], v[:, 1]], 1),
    "stack-last": lambda v: torch.stack([v[:, :, 4], v[:, :, 0], v[:, :, 1], v[:, :, 2]], -1),
    "stack-3": lambda v: torch.stack((v[:, 2], v[:, 4], v[:, 1]), dim=1),
    "stack-1": lambda v: torch.stack([v], 1),
    "stack-types": lambda v: torch.stack([v, v > 0], 1),
    "cat": lambda v: torch.cat([v, v[:, 1:2], v[:, :3]], 1),
    "cat-even": lambda v: torch.cat([v[:, :4], v[:, 2:]], dim=1),
    "cat-last": lambda v: torch.cat((v, -v), -1),
    "cat-of-one": lambda v: torch.cat([v], 2),
    "cat-integers": lambda v: torch.cat([positions(v), positions(v).int()], 2),
    "concat": lambda v: torch.concat([v[:, :, :1], v], dim=2),
    "concatenate": lambda v: torch.concatenate([v, v], axis=1),  # type: ignore[call-arg]
    "hstack": lambda v: torch.hstack([v, v[:, :1]]),
    "unbind": lambda v: v.unbind(1)[4] - v.unbind(dim=-1)[0][:, :5],
    "select": lambda v: v.select(1, -2),
    "narrow": lambda v: v.narrow(1, 1, 4),
    "narrow-from-the-end": lambda v: torch.narrow(v, 2, -3, 2),
    "split": lambda v: v.split(4, 1)[1],
    "split-sizes": lambda v: torch.split(v, [1, 3, 1], dim=2)[1],
    "split_with_sizes": lambda v: v.split_with_sizes([4, 2], 1)[0],
    "chunk": lambda v: v.chunk(2, -1)[0] * v.chunk(2, dim=2)[0],
    "chunk-few": lambda v: v.chunk(4, 1)[2],
    "tensor_split": lambda v: v.tensor_split(4, 1)[3],
    "tensor_split-positions": lambda v: torch.tensor_split(v, [1, 4], dim=1)[1],
    "gather": lambda v: torch.gather(v, 2, positions(v)),
    "gather-inner": lambda v: v.gather(1, positions(v)),
    "gather-shorter": lambda v: v.gather(1, positions(v)[:, :, :3]),
    "take_along_dim": lambda v: torch.take_along_dim(v, positions(v)[:, :1], dim=2),
    "index_select": lambda v: v.index_select(1, torch.arange(3) * 2 + 1),
    "subscript-integer": lambda v: v[:, 3],
    "subscript-from-the-end": lambda v: v[..., -1],
    "subscript-slice": lambda v: v[:, 1:5],
    "subscript-step": lambda v: v[:, ::2, 1:],
    "subscript-all": lambda v: v[:, None, 2, 1:4],
    "subscript-open": lambda v: v[:, -3:],
    "subscript-tensor": lambda v: v[:, torch.arange(4) + 1],
    "flip": lambda v: v.flip(1),
    "flip-several": lambda v: torch.flip(v, [1, 2]),
    "roll": lambda v: v.roll(2, 1),
    "roll-several": lambda v: torch.roll(v, (-1, 7), (1, 2)),
    "pad": lambda v: functional.pad(v, (1, 2)),
    "pad-value": lambda v: functional.pad(v, (0, 3, 2, 0), value=1.5),
    "pad-cut": lambda v: functional.pad(v, (-1, 4, 0, -2), "constant", -1),
    "repeat": lambda v: v.repeat(1, 2, 3),
    "repeat-ones": lambda v: v.repeat(1, 1, 1),
    "tile": lambda v: torch.tile(v, (2, 1)),
    "repeat_interleave": lambda v: v.repeat_interleave(3, 1),
    "repeat_interleave-last": lambda v: torch.repeat_interleave(v, 2, dim=-1),
    "unfold": lambda v: v.unfold(1, 3, 2),
    "tril": torch.tril,
    "triu": lambda v: torch.triu(v, -1),
    "tril-above": lambda v: v.tril(diagonal=2),
    "diagonal": lambda v: torch.diagonal(v, 0, 1, 2),
    "diagonal-below": lambda v: v.diagonal(-2, 1, 2),
    "diagonal-above": lambda v: v.diagonal(1, 2, 1),
    "diag_embed": lambda v: torch.diag_embed(v[:, 0]),
    "diag_embed-above": lambda v: torch.diag_embed(v[:, 0], 2),
    "movedim": lambda v: v.movedim(1, 2),
    "movedim-several": lambda v: torch.movedim(v, (2, 1), (1, 2)),
    "unflatten": lambda v: v.unflatten(1, (2, 3)),
    "unflatten-rest": lambda v: v.unflatten(1, (3, -1)),
    "reshape": lambda v: v.reshape(v.shape[0], 10, 3),
    "reshape-more": lambda v: v.reshape(v.shape[0], 2, 5, -1),
    "flatten": lambda v: v.flatten(1),
    "flatten-of-turned": lambda v: v.transpose(1, 2).flatten(1).reshape(v.shape[0], 15, 2),
    "sort": lambda v: torch.sort(v, stable=True).values,
    "sort-positions": lambda v: torch.sort(v, dim=1, descending=True, stable=True)[1],
    "argsort": lambda v: torch.argsort(v, dim=1, stable=True),
    "argsort-down": lambda v: v.argsort(dim=-1, descending=True, stable=True),
    "topk": lambda v: torch.topk(v, 2, dim=1).values,
    "topk-least": lambda v: v.topk(3, largest=False)[0],
    "kthvalue": lambda v: torch.kthvalue(v, 2, 1).values,
    "kthvalue-kept": lambda v: v.kthvalue(5, dim=2, keepdim=True)[0],
    "median": lambda v: v.median(1).values,
    "quantile": lambda v: torch.quantile(v, 0.5, 1),
    "quantile-kept": lambda v: v.quantile(0.3, dim=2, keepdim=True, interpolation="lower"),
    "median-kept": lambda v: torch.median(v, -1, keepdim=True)[0],
    "hl.split": lambda v: v[:, :4].reshape(v.shape[0], 2, 5, 2)[..., 0],
}


@backends
@pytest.mark.parametrize("name", CALLS)
def test_elements_are_those_of_eager(name: str, backend: str) -> None:
    check(*run(CALLS[name], tensor(), backend))


OF_LINES: dict[str, Callable[[Any], Any]] = {
    "vstack row_stack": lambda v: torch.vstack([v, v * 2])[1, 3] + v[0],
    "hstack": lambda v: torch.hstack([v, v * 2])[7] + v[0],
    "roll": lambda v: v.roll(2)[1] + v.reshape(3, 2).roll(3)[2, 1],
    "fliplr flipud": lambda v: v.flipud()[1] + v.reshape(2, 3).fliplr()[1, 2],
    "diag": lambda v: torch.diag(v, 1)[3, 4] + torch.diag(v.reshape(2, 3), diagonal=1)[1],
    "msort median": lambda v: torch.msort(v)[4] + v.median() + torch.median(v.reshape(2, 3)),
    "repeat_interleave": lambda v: v.reshape(2, 3).repeat_interleave(2)[7],
    "take_along_dim": lambda v: torch.take_along_dim(v, torch.arange(6) // 3)[3],
    "ravel": lambda v: v.reshape(2, 3).ravel()[4],
    "topk": lambda v: v.topk(4, sorted=False).values[3],
    "squeeze": lambda v: v[2].unsqueeze(0).unsqueeze(-1).squeeze(),
    "gather": lambda v: v[(v[0] * 0).long() + 3],
    "view": lambda v: v.view(torch.int32).view(dtype=torch.float32)[5],
}


@helion.kernel
def numbers(x: torch.Tensor, out: torch.Tensor, fn: Any) -> None:
    for i in hl.grid(x.size(0)):
        out[i] = fn(x[i, :])


@backends
@pytest.mark.parametrize("name", OF_LINES)
def test_lines_and_numbers(name: str, backend: str) -> None:
    x, fn = randn(3, 6).round(decimals=1), OF_LINES[name]
    out = torch.empty(3)
    on_backend(numbers, backend)(x, out, fn)
    check(out, torch.stack([fn(row) for row in x]))


def test_every_row_of_the_tables_is_called() -> None:
    called = {name.split("-")[0] for name in CALLS} | {
        part for name in OF_LINES for part in name.split()
    }
    assert {*REARRANGEMENTS, *MOVES, *SORTS} <= called


@helion.kernel
def ordered(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    up, down = torch.empty_like(x), torch.empty_like(x)
    place = torch.empty(x.shape, dtype=torch.int64)
    for t in hl.tile(x.size(0)):
        up[t, :] = torch.sort(x[t, :]).values
        down[t, :], place[t, :] = torch.sort(x[t, :], descending=True)
    return up, down, place


def unordered(rows: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    """Many equal elements, and the extremes of the type."""
    if not dtype.is_floating_point:
        x = integers(-9, 9, rows, size).to(dtype)
        if dtype != torch.bool:
            limits = torch.iinfo(dtype)
            x[0, 0], x[0, -1] = limits.max, limits.min
        return x
    x = (randn(rows, size) * 3).round().to(dtype)
    x[0, 0], x[0, -1] = float("nan"), float("-inf")
    x[-1, 0], x[-1, -1] = -0.0, float("inf")
    return x


EXTENTS = [(torch.float32, n) for n in (1, 2, 13, 16, 17, 100, 1000)]
TYPES = (
    torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
)  # fmt: skip


@backends
@pytest.mark.parametrize(("dtype", "size"), [*EXTENTS, *((dtype, 17) for dtype in TYPES)])
def test_sorts_of_every_type_and_length_are_stable(
    dtype: torch.dtype, size: int, backend: str
) -> None:
    x = unordered(5, size, dtype)
    up, down, place = on_backend(ordered, backend)(x)
    check(up, torch.sort(x, stable=True).values)
    expected = torch.sort(x, descending=True, stable=True)
    check(down, expected.values)
    assert torch.equal(place, expected.indices)


WIDE_UNSIGNED = {torch.uint16: 2**16 - 1, torch.uint32: 2**32 - 1, torch.uint64: 2**63 + 5}


@backends
@pytest.mark.parametrize("dtype", WIDE_UNSIGNED)
def test_wide_unsigned_integers_are_sorted(dtype: torch.dtype, backend: str) -> None:
    numbers = [5, 0, WIDE_UNSIGNED[dtype], 1, 2**15, 7, 5]
    x = torch.tensor([numbers], dtype=dtype)
    up, down, place = on_backend(ordered, backend)(x)
    assert up[0].tolist() == sorted(numbers)
    assert down[0].tolist() == sorted(numbers, reverse=True)
    assert place[0].tolist() == sorted(range(7), key=lambda i: -numbers[i])


@helion.kernel
def pairs_of_pairs(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        low, high = hl.split(hl.join(x[t], -x[t]))
        out[t] = low - high
    return out


def test_splitting_what_was_joined_leaves_nothing_of_it() -> None:
    x = randn(9)
    assert torch.equal(pairs_of_pairs(x), 2 * x)
    code = pairs_of_pairs.bind((x,), target="cuda:90").to_triton_code(CONFIG)
    assert "tl.join" not in code
    assert "tl.split" not in code
