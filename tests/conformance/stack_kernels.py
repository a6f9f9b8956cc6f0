"""Stacks of tensors, reached by address."""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, randn


@helion.kernel
def stacked_rows(
    like: torch.Tensor, addresses: torch.Tensor, held: list[torch.Tensor]
) -> torch.Tensor:
    out = torch.empty([addresses.size(0), like.size(0)], dtype=like.dtype, device=like.device)
    for t in hl.tile(addresses.size(0)):
        stack = hl.stacktensor_like(like, addresses[t])
        for u in hl.tile(like.size(0)):
            out[t, u] = stack[u] * 2
    return out


@helion.kernel
def stacked_sums(
    like: torch.Tensor, addresses: torch.Tensor, held: list[torch.Tensor]
) -> torch.Tensor:
    out = torch.zeros([like.size(0)], dtype=like.dtype, device=like.device)
    for t in hl.tile(like.size(0)):
        parts = hl.stacktensor_like(like, addresses[:])
        out[t] = hl.load(parts, [t, slice(None)]).sum(2).sum(0)
    return out


@helion.kernel
def stacked_store(
    like: torch.Tensor, addresses: torch.Tensor, x: torch.Tensor, held: list[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    for t, u in hl.tile([addresses.size(0), like.size(0)]):
        stack = hl.stacktensor_like(like, addresses[t])
        stack[u] = x[t, u]
        hl.store(stack, [u], stack[u] + x[t, u], extra_mask=x[t, u] > 0)
    return tuple(held)


@helion.kernel
def one_of_a_stack(like: torch.Tensor, addresses: torch.Tensor, held: list[torch.Tensor]) -> Any:
    out = torch.empty([addresses.size(0), like.size(1)], dtype=like.dtype, device=like.device)
    for i in hl.grid(addresses.size(0)):
        out[i, :] = hl.stacktensor_like(like, addresses[i])[1, :]
    return out


def addresses_of(tensors: list[torch.Tensor]) -> torch.Tensor:
    """The tensors' addresses, as 64-bit numbers without a sign."""
    return torch.tensor([tensor.data_ptr() for tensor in tensors], dtype=torch.uint64)


def stack(*shape: int, count: int = 5, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [randn(*shape, seed=seed, dtype=dtype) for seed in range(count)]


def inputs(*shape: int, count: int = 5, dtype: torch.dtype = torch.float32) -> tuple[Any, ...]:
    held = stack(*shape, count=count, dtype=dtype)
    return held[0], addresses_of(held), held


def inputs_of_store() -> tuple[Any, ...]:
    held = [torch.zeros(11) for _ in range(5)]
    return held[0], addresses_of(held), randn(5, 11, seed=9), held


def stored(like: torch.Tensor, _: torch.Tensor, x: torch.Tensor, held: list[torch.Tensor]) -> Any:
    return tuple(torch.where(x > 0, x + x, x))


# fmt: off
STACKS = (
    Case("stacked_rows", stacked_rows, lambda: inputs(11),
         lambda like, _, held: torch.stack(held) * 2, blocks(4, 8), EXACT),
    Case("stacked_rows_fp16", stacked_rows, lambda: inputs(11, dtype=torch.float16),
         lambda like, _, held: torch.stack(held) * 2, blocks(2, 4), EXACT),
    Case("stacked_sums", stacked_sums, lambda: inputs(7, 3),
         lambda like, _, held: torch.stack(held).double().sum((0, 2)), blocks(4), 15),
    Case("stacked_store", stacked_store, inputs_of_store, stored, blocks(2, 4), EXACT),
    Case("one_of_a_stack", one_of_a_stack, lambda: inputs(3, 7),
         lambda like, _, held: torch.stack(held)[:, 1], blocks(), EXACT),
)
# fmt: on
