"""Arguments of operators: sizes go in, the same tensors come out every time, on any device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import prod
from typing import Any

import torch

from tilesmith.bench.case import Arguments, Input
from tilesmith.numerics.inputs import random_tensor

Size = tuple[int, ...]
Maker = Callable[[Size, torch.device, torch.dtype], Arguments]
DTYPE_NAMES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.float8_e4m3fn: "fp8",
}
POOL = 2**26 - 5
"""Random numbers drawn for one tensor; odd, so that no two rows of a matrix are the same."""


def inputs(
    make: Maker,
    sizes: Iterable[Size],
    dtype: torch.dtype = torch.bfloat16,
    *,
    min_memory_gb: float = 0.0,
    is_marked: bool = False,
) -> tuple[Input, ...]:
    """One input for each size, labelled by it, and by its type too if it ``is_marked``."""
    mark = f" {DTYPE_NAMES[dtype]}" if is_marked else ""
    return tuple(
        Input("x".join(map(str, size)) + mark, partial(make, size), dtype, min_memory_gb)
        for size in sizes
    )


def normal(
    shape: Size, device: torch.device, dtype: torch.dtype, seed: int = 0, scale: float = 1.0
) -> torch.Tensor:
    """Normal numbers; of a large tensor they come round again after ``POOL`` elements."""
    count = prod(shape)
    pool = random_tensor([min(count, POOL)], dtype, seed=seed, device=device, scale=scale)
    if count > POOL:
        pool = pool.repeat(-(-count // POOL))[:count]
    return pool.view(shape)


def normals(*shapes: Size, device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """One tensor of normal numbers for each shape."""
    return tuple(normal(shape, device, dtype, seed) for seed, shape in enumerate(shapes))


def of_shapes(shapes_of: Callable[[Size], Iterable[Size]]) -> Maker:
    """Makes one tensor of normal numbers for each shape that a size stands for."""
    return lambda size, device, dtype: normals(*shapes_of(size), device=device, dtype=dtype)


one_tensor = of_shapes(lambda size: (size,))
two_tensors = of_shapes(lambda size: (size, size))
three_tensors = of_shapes(lambda size: (size, size, size))
with_weight = of_shapes(lambda size: (size, size[-1:]))
with_weight_and_bias = of_shapes(lambda size: (size, size[-1:], size[-1:]))


def integers(below: int, shape: Size, device: torch.device, seed: int = 0) -> torch.Tensor:
    """Uniform int64 numbers in [0, below)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(below, shape, generator=generator).to(device)


def random_offsets(sequences: int, longest: int) -> torch.Tensor:
    """Where sequences of random lengths begin and end, on the host; some are empty."""
    lengths = integers(longest + 1, (sequences,), torch.device("cpu"))
    # At least one is as long as can be, as callers that pad are told.
    lengths[-1] = longest
    return torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])


def first_length(*arguments: Any) -> int:
    """The last size of the first argument: what a row sums over."""
    return arguments[0].size(-1)


def num_bytes_of(*tensors: torch.Tensor) -> float:
    """All bytes of some tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
