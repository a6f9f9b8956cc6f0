"""Attention over sequences laid end to end: tiles of the last one reach past the tensors' end.

With masks nothing beside the tensors is touched, in native code either (they end where forbidden
pages begin). A store without its mask writes there: checked, it is told at its line.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.nn.functional import silu

import tilesmith as helion
import tilesmith.language as hl
from tests.backends.cpu.dots.guarded_memory import GuardedArray
from tilesmith import exc
from tilesmith.numerics.compare import check_against


def attention(longest: int, q: Any, k: Any, v: Any, offsets: Any, out: Any, is_masked: Any):
    head_dim = hl.specialize(v.size(2))
    sequences, heads = offsets.size(0) - 1, q.size(1)
    for tile_b, tile_h, tile_q in hl.tile([sequences, heads, longest], block_size=[1, 1, None]):
        start = offsets[tile_b.begin]
        length = offsets[tile_b.begin + 1] - start
        if tile_q.begin < length:
            head, everything = tile_h.begin, slice(None)
            in_q = tile_q.index < length
            place_q = [tile_q.index + start, head, everything]
            queries = hl.load(q, place_q, extra_mask=in_q[:, None])
            acc = hl.zeros([tile_q, head_dim], dtype=torch.float32)
            for tile_k in hl.tile(0, tile_q.end, block_size=None):
                in_k = tile_k.index < length
                place_k = [tile_k.index + start, head, everything]
                keys = hl.load(k, place_k, extra_mask=in_k[:, None])
                values = hl.load(v, place_k, extra_mask=in_k[:, None])
                weights = silu(torch.matmul(queries, keys.T))
                is_past = tile_q.index[:, None] >= tile_k.index[None, :]
                weights = torch.where(is_past & in_q[:, None] & in_k[None, :], weights, 0.0)
                acc += torch.matmul(weights.to(v.dtype), values)
            if is_masked:
                hl.store(out, place_q, acc.to(out.dtype), extra_mask=in_q[:, None])
            else:
                out[tile_q.index + start, head, :] = acc.to(out.dtype)  # the store
    return out


def expected(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, offsets: Any) -> torch.Tensor:
    out = torch.zeros(v.shape, dtype=torch.double)
    for begin, end in pairwise(offsets.tolist()):
        queries, keys, values = (x[begin:end].double().transpose(0, 1) for x in (q, k, v))
        weights = silu(queries @ keys.transpose(1, 2)).tril()
        out[begin:end] = (weights @ values).transpose(0, 1)
    return out


def guarded(source: torch.Tensor, arrays: list[GuardedArray]) -> torch.Tensor:
    array = GuardedArray(source.numel(), source.dtype)
    arrays.append(array)
    return array.elements.view(source.shape).copy_(source)


def inputs(lengths: list[int], dtype: torch.dtype, index: torch.dtype) -> tuple[Any, ...]:
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    generator = torch.Generator().manual_seed(0)
    shape = (int(offsets[-1]), 2, 16)
    tensors = (torch.randn(shape, generator=generator).to(dtype) for _ in range(3))
    return (*tensors, offsets.to(index))


CONFIGS = (None, [1, 16], [16, 16], [64, 32])


@pytest.mark.parametrize("blocks", CONFIGS, ids=str)
@pytest.mark.parametrize("static_shapes", [True, False])
@pytest.mark.parametrize("types", [(torch.float32, torch.int32), (torch.bfloat16, torch.int64)])
def test_masks_keep_every_access_inside(blocks, static_shapes: bool, types) -> None:
    arrays: list[GuardedArray] = []
    tensors = [guarded(tensor, arrays) for tensor in inputs([40, 0, 33, 7], *types)]
    out = guarded(torch.zeros_like(tensors[2]), arrays)
    config = None if blocks is None else helion.Config(block_sizes=blocks)
    kernel = helion.kernel(attention, config=config, static_shapes=static_shapes)
    kernel(40, *tensors, out, True)  # pyright: ignore[reportCallIssue]
    check_against(out, expected(*tensors), reduction_length=40, intermediate=types[0])


@pytest.mark.parametrize("blocks", CONFIGS[2:], ids=str)
def test_a_store_past_the_end_is_told_at_its_line(blocks) -> None:
    tensors = inputs([64, 64, 40], torch.float32, torch.int64)
    out = torch.zeros_like(tensors[2])
    kernel = helion.kernel(attention, config=helion.Config(block_sizes=blocks), check=True)
    with pytest.raises(exc.OutOfBoundsAccess) as caught:
        kernel(64, *tensors, out, False)  # pyright: ignore[reportCallIssue]
    assert "for dimension 0 of `out`, of size 168" in str(caught.value)
    assert caught.value.loc is not None
    with open(__file__) as file:
        assert file.readlines()[caught.value.loc.line - 1].endswith("# the store\n")
