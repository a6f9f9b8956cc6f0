"""Composites that compare all pairs: one-hot rows, sorted rows, scattered sums, attention."""

from __future__ import annotations

import torch
from torch.nn import functional

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, randn


@helion.kernel
def rows_of_classes(labels: torch.Tensor) -> torch.Tensor:
    out = torch.empty([labels.size(0), 7], dtype=torch.int64, device=labels.device)
    for t in hl.tile(labels.size(0)):
        out[t, :] = functional.one_hot(labels[t], num_classes=7)
    return out


@helion.kernel
def places_in_sorted_rows(
    row: torch.Tensor, rows: torch.Tensor, x: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    shared = torch.empty(x.shape, dtype=torch.int64, device=x.device)
    own = torch.empty_like(shared)
    buckets = torch.empty(x.shape, dtype=torch.int32, device=x.device)
    for t in hl.tile(x.size(0)):
        shared[t, :] = torch.searchsorted(row[:], x[t, :], right=True)
        own[t, :] = torch.searchsorted(rows[t, :], x[t, :], side="left")
        buckets[t, :] = torch.bucketize(x[t, :], row[:], out_int32=True)
    return shared, own, buckets


def _places(row: torch.Tensor, rows: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    shared = torch.searchsorted(row, x, right=True)
    return shared, torch.searchsorted(rows, x), torch.bucketize(x, row, out_int32=True)


def sorted_rows() -> tuple[torch.Tensor, ...]:
    row, x = randn(13).sort().values, randn(5, 11, seed=1)
    x[0, :3] = torch.tensor([row[4], float("nan"), float("inf")])
    return row, randn(5, 13, seed=2).sort(1).values, x


@helion.kernel
def scattered_sums(
    x: torch.Tensor, index: torch.Tensor, src: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    along, across = torch.empty_like(x), torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        along[t, :] = x[t, :].scatter_add(1, index[t, :], src[t, :])
    for u in hl.tile(x.size(1)):
        across[:, u] = torch.scatter_add(x[:, u], 0, index[:, u] % 5, src[:, u])
    return along, across


def _scattered(
    x: torch.Tensor, index: torch.Tensor, src: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    n = x.size(1)
    across = x.scatter_add(0, index[:, :n] % x.size(0), src[:, :n])
    return x.scatter_add(1, index, src), across


def scattered() -> tuple[torch.Tensor, ...]:
    index = torch.arange(55).reshape(5, 11) * 3 % 7
    return tuple((randn(5, 7).round(), index, randn(5, 11, seed=1).round()))


@helion.kernel
def attention_of_rows(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    plain = torch.empty([*q.shape[:2], v.size(2)], dtype=q.dtype, device=q.device)
    causal, masked = torch.empty_like(plain), torch.empty_like(plain)
    attend = functional.scaled_dot_product_attention
    for t in hl.tile(q.size(0)):
        plain[t, :, :] = attend(q[t, :, :], k[t, :, :], v[t, :, :])
        causal[t, :, :] = attend(q[t, :, :], k[t, :, :], v[t, :, :], is_causal=True)
        masked[t, :, :] = attend(q[t, :, :], k[t, :, :], v[t, :, :], mask[:, :], scale=0.3)
    return plain, causal, masked


def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    q, k, v = q.double(), k.double(), v.double()
    attend = functional.scaled_dot_product_attention
    return attend(q, k, v), attend(q, k, v, is_causal=True), attend(q, k, v, mask, scale=0.3)


def heads() -> tuple[torch.Tensor, ...]:
    mask = randn(6, 9, seed=3) > 0
    mask[2] = False
    return randn(3, 6, 5), randn(3, 9, 5, seed=1), randn(3, 9, 4, seed=2), mask


@helion.kernel
def tensors_of_the_language(x: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """``hl.zeros`` and ``hl.full`` on both sides; numbers at offsets of one's own."""
    sums = hl.zeros([x.size(0), 7])
    steps = hl.full(shape=[x.size(0)], value=2, dtype=torch.int32)
    drawn, same = torch.empty_like(steps, dtype=torch.float32), hl.zeros(x.size(0))
    for t in hl.tile(x.size(0)):
        acc = hl.zeros(t) + hl.full(t.block_size, 1.0)
        sums[t, :] = sums[t, :] + x[t, :] + steps[t][:, None] + acc[:, None]
        drawn[t] = hl.rand([], seed=3, offsets=places[t]) - hl.rand([t], 3, offsets=places[t])
        same[t] = hl.rand(t, seed=3) - hl.rand([t], seed=3)
    return sums, drawn, same


def _of_the_language(x: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x + 3, torch.zeros(x.size(0)), torch.zeros(x.size(0))


# fmt: off
LOOKUPS: tuple[Case, ...] = (
    Case("rows of classes", rows_of_classes, lambda: (torch.arange(13) * 5 % 7,),
         lambda labels: functional.one_hot(labels, 7), blocks(4), EXACT),
    Case("places in sorted rows", places_in_sorted_rows, sorted_rows, _places, blocks(2), EXACT),
    Case("scattered sums", scattered_sums, scattered, _scattered, blocks(2, 4), EXACT,
         needs_static_shapes=True),
    Case("attention of rows", attention_of_rows, heads, _attention, blocks(2), 9),
    Case("tensors of the language", tensors_of_the_language,
         lambda: (randn(13, 7).round(), torch.arange(13) * 3), _of_the_language, blocks(4), EXACT),
)
# fmt: on
