"""Fresh memory never holds the expected values by chance."""

from __future__ import annotations

import platform

import pytest
import torch

from tilesmith.bench.judging.poison import poison_free_memory, poison_results, poisoned_allocations

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="an option of glibc")


@needs_glibc
@pytest.mark.parametrize("size", [1, 2, 31, 100, 257, 511, 4096, 1 << 20])
def test_memory_handed_out_is_poisoned_even_where_results_were_freed(size: int) -> None:
    for _ in range(50):
        freed = [torch.full((size + more,), 7.0) for more in range(-min(size, 40), 40)]
        del freed
        poison_free_memory([torch.empty(size)], [4])
        with poisoned_allocations():
            taken = torch.empty(size)
        assert not (taken == 7.0).any()


@needs_glibc
def test_memory_is_left_alone_afterwards() -> None:
    with pytest.raises(ValueError, match="inside"), poisoned_allocations():
        raise ValueError("inside")
    blocks = [torch.empty(1 << 22) for _ in range(2)]  # fresh pages are zeros
    assert all(bool((block.view(torch.uint8) != 0xFE).any()) for block in blocks)


def test_results_are_overwritten_but_not_arguments() -> None:
    argument, result = torch.ones(4), torch.ones(4)
    poison_results((argument[1:], result), (argument,))
    assert argument.tolist() == [1.0] * 4
    assert result.isnan().all()
