"""Reshapes whose sizes only the config decides: parts of a block, and blocks made of parts."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS
from tilesmith.exc import DataDependentOutputShapeNotSupported, ShapeMismatch


@helion.kernel
def sums_of_pairs(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(x.size(0) // 2)
    for t in hl.tile(x.size(0)):
        left, right = hl.split(x[t].view(t.block_size // 2, 2))
        out[t.begin // 2 + hl.arange(t.block_size // 2)] = left + right
    return out


@pytest.mark.parametrize("block", [2, 16, 64])
def test_a_block_is_split_where_no_tile_is_partial(block):
    x = torch.randn(192)
    bound = sums_of_pairs.bind((x,))
    config = helion.Config(block_sizes=[block])
    expected = x.view(-1, 2).sum(-1)
    torch.testing.assert_close(bound.compile_config(config)(x), expected)
    text = bound.to_triton_code(config, target="cuda:90")
    assert "tl.reshape(" in text


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [64, 192, 4096])
def test_a_default_splits_its_blocks(length, backend):
    """Neither a block of one, as GPUs had it, nor one that leaves a partial tile."""
    x = torch.randn(length)
    bound = helion.kernel(sums_of_pairs.fn, backend=backend).bind((x,))
    torch.testing.assert_close(bound(x), x.view(-1, 2).sum(-1))
    text = sums_of_pairs.bind((x,), target="cuda:90").to_triton_code()
    assert "tl.reshape(" in text


def test_a_partial_tile_is_not_split():
    bound = sums_of_pairs.bind((torch.randn(192),))
    with pytest.raises(ShapeMismatch, match="partial tile"):
        bound.compile_config(helion.Config(block_sizes=[128]))(torch.randn(192))


@helion.kernel
def unpacked_matmul(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = packed.size(1)
    out = torch.empty([m, n], dtype=torch.float32)
    block_n, block_k = hl.register_block_size(n), hl.register_block_size(k)
    for tile_m, tile_n in hl.tile([m, n], block_size=[None, block_n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k, block_size=block_k):
            first = tile_k.begin // 2
            pair = packed[first : first + block_k // 2, tile_n]
            low, high = (pair << 4) >> 4, pair >> 4
            both = torch.stack((low.to(x.dtype), high.to(x.dtype)), dim=1)
            acc = hl.dot(x[tile_m, tile_k], both.reshape([block_k, block_n]), acc=acc)
        out[tile_m, tile_n] = acc
    return out


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("blocks", [[16, 16, 16], [8, 8, 32]])
def test_parts_become_a_block(blocks, backend):
    k = 64
    x, packed = torch.randn(20, k), torch.randint(-128, 127, (k // 2, 24), dtype=torch.int8)
    kernel = helion.kernel(unpacked_matmul.fn, backend=backend)
    bound = kernel.bind((x, packed))
    whole = torch.stack(((packed << 4) >> 4, packed >> 4), dim=1).reshape(k, 24).float()
    found = bound.compile_config(helion.Config(block_sizes=blocks))(x, packed)
    torch.testing.assert_close(found, x @ whole, rtol=1e-4, atol=1e-3)


def test_parts_do_not_become_a_partial_block():
    x, packed = torch.randn(20, 42), torch.zeros(21, 24, dtype=torch.int8)
    with pytest.raises(ShapeMismatch, match="nor make such axes"):
        unpacked_matmul.bind((x, packed)).compile_config(helion.Config(block_sizes=[16, 16, 16]))


@helion.kernel
def there_and_back(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t, u in hl.tile(x.size()):
        flat = x[t, u].reshape(-1, t.block_size * u.block_size)
        out[t, u] = flat.reshape(t.block_size * 2 // 2, u.block_size + 1 - 1)
    return out


def test_sizes_that_come_out_as_blocks_are_blocks():
    x = torch.randn(13, 30)
    bound = there_and_back.bind((x,))
    for blocks in ([4, 8], [16, 64]):
        assert torch.equal(bound.compile_config(helion.Config(block_sizes=blocks))(x), x)


@helion.kernel
def masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[mask].sum()
    return out


def test_a_host_tensor_of_booleans_is_no_index():
    with pytest.raises(DataDependentOutputShapeNotSupported):
        masked(torch.randn(8), torch.ones(8, dtype=torch.bool))


@helion.kernel
def halves(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(x.size(0) // 2)
    block = hl.register_block_size(8, 128)
    for t in hl.tile(x.size(0), block_size=block):
        left, right = hl.split(x[t].view(t.block_size // 2, 2))
        out[t.begin // 2 + hl.arange(t.block_size // 2)] = left + right
    return out


@pytest.mark.parametrize("length", [96, 320])
def test_a_default_that_is_found_keeps_to_the_bounds(length):
    """Tiles of 128 would be partial; the next ones that split are within the bounds."""
    x = torch.randn(length)
    bound = halves.bind((x,))
    torch.testing.assert_close(bound(x), x.view(-1, 2).sum(-1))
    for target in (None, "cuda:90"):
        (block,) = halves.bind((x,), target=target).default_config().block_sizes
        assert 8 <= block <= 128
        assert length % block == 0
