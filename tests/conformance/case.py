"""A conformance case: a kernel, its inputs, what it must compute, and a config of small tiles."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import tilesmith as helion
from tilesmith.numerics.compare import check_against

Args = tuple[Any, ...]
EXACT = 0
"""Reduction length of a result that must be equal to its reference bit by bit."""


@dataclass(frozen=True)
class Case:
    """One kernel on one set of inputs.

    Attributes:
        reference: gives the results in fp64 (or in the results' own type where they are exact).
        config: block sizes that leave a partial tile on every axis of the inputs.
        reduction_length: terms of the longest sum behind one element; ``EXACT`` for none at all.
        is_interpretable: whether Triton's interpreter computes it rightly (it has no bf16).
        has_small_default: whether that takes seconds with the default config, not minutes.
        is_shaped_by_config: whether the result's shape depends on the config.
        needs_static_shapes: whether the kernel takes sizes for constants.
        varies_with_blocks: whether other block sizes mean other results.
    """

    name: str
    kernel: Any
    make_args: Callable[[], Args]
    reference: Callable[..., Any]
    config: helion.Config
    reduction_length: int = 1
    is_interpretable: bool = True
    has_small_default: bool = True
    is_shaped_by_config: bool = False
    needs_static_shapes: bool = False
    varies_with_blocks: bool = False

    def __str__(self) -> str:
        return self.name

    @functools.cached_property
    def dynamic_kernel(self) -> Any:
        """The kernel with sizes as runtime values."""
        return helion.kernel(self.kernel.fn, static_shapes=False)

    def check(self, actual: Any) -> None:
        """Compare with the reference, computed from fresh inputs: kernels may write theirs."""
        expected = self.reference(*self.make_args())
        results = tuple(result.cpu() for result in as_tuple(actual))
        wanted = as_tuple(expected)
        assert len(results) == len(wanted)
        for result, reference in zip(results, wanted):
            self._check_one(result, reference)

    def _check_one(self, result: torch.Tensor, reference: torch.Tensor) -> None:
        if self.reduction_length == EXACT:
            assert result.dtype == reference.dtype
            assert result.shape == reference.shape
            torch.testing.assert_close(result, reference, rtol=0, atol=0, equal_nan=True)
        else:
            check_against(result, reference, reduction_length=self.reduction_length)


def as_tuple(returned: Any) -> tuple[torch.Tensor, ...]:
    """What a kernel returned, as a tuple."""
    return returned if isinstance(returned, tuple) else (returned,)


def blocks(*sizes: int, **others: Any) -> helion.Config:
    """A config given by its block sizes."""
    return helion.Config(block_sizes=list(sizes), **others)


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal numbers on the default device, the same ones at every call."""
    generator = torch.Generator("cpu").manual_seed(seed)
    values = torch.randn(shape, generator=generator, device="cpu").to(dtype)
    return values.to(torch.get_default_device())


def integers(low: int, high: int, *shape: int, seed: int = 0) -> torch.Tensor:
    """int64 in [low, high) on the default device, the same ones at every call."""
    generator = torch.Generator("cpu").manual_seed(seed)
    values = torch.randint(low, high, shape, generator=generator, device="cpu")
    return values.to(torch.get_default_device())
