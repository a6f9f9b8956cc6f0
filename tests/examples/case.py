"""What a case of the example suites is: a kernel, inputs of a size, the fp64 reference, a budget.

Also the inputs, sizes and lengths that families of cases share. Inputs depend only on size, dtype
and device. Configs have blocks of 16: most tiles are partial.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch

import tilesmith as helion
from tilesmith.numerics.compare import AccuracyError, ErrorReport, measure_by
from tilesmith.numerics.inputs import random_tensor
from tilesmith.numerics.tolerance import derive_budget

Size = tuple[int, ...]
Args = tuple[Any, ...]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Case:
    """One kernel with one kind of arguments.

    Attributes:
        name: unique, also the test id.
        kernel: the decorated kernel.
        make_inputs: (size, dtype, device) -> positional arguments.
        reference: same arguments -> fp64 outputs, in the form the kernel returns them.
        config: an explicit small config.
        sizes: boundary sizes; the last one has partial tiles along every axis.
        reduction_length: terms of the longest sum behind one output element.
        roundings: per output, how many intermediates are rounded to the input dtype on the way.
        rounded_to: other types that intermediates are rounded to on the way.
        terms: same arguments -> per output the size of what is summed behind each element, as a
            Budget takes it; None for outputs that are such sums themselves, all of one size.
        noticeable: an error relative to the largest element that the budget must not allow.
        dtypes: what ``make_inputs`` may be asked for.
        has_free_layouts: whether inputs may be strided at will (host code takes no views of them).
        needs_static_shapes: whether the kernel takes sizes for constants.
        is_interpretable: whether Triton's own interpreter can run it.
        missing_targets: those whose Triton lacks an element type of the kernel.
    """

    name: str
    kernel: Any
    make_inputs: Callable[[Size, torch.dtype, str], Args]
    reference: Callable[..., Any]
    config: helion.Config
    sizes: tuple[Size, ...]
    reduction_length: Callable[[Size], int] = lambda size: 1
    roundings: tuple[int, ...] = ()
    rounded_to: tuple[torch.dtype, ...] = ()
    terms: Callable[..., tuple[torch.Tensor | None, ...]] = lambda *args: ()
    noticeable: float = 1e-3
    dtypes: tuple[torch.dtype, ...] = DTYPES
    has_free_layouts: bool = True
    needs_static_shapes: bool = False
    is_interpretable: bool = True
    missing_targets: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    def check(self, actual: Any, args: Args, size: Size, dtype: torch.dtype) -> list[ErrorReport]:
        """Compare what the kernel returned with the reference, output by output."""
        results, expected = as_outputs(actual), as_outputs(self.reference(*args))
        assert len(results) == len(expected)
        reports: list[ErrorReport] = []
        listed = zip_longest(results, expected, self.roundings, self.terms(*args))
        for result, wanted, roundings, terms in listed:
            if wanted is None or result is None:
                assert wanted is result
                continue
            narrow = [dtype] * (roundings or 0) + list(self.rounded_to)
            budget = derive_budget(result.dtype, self.reduction_length(size), narrow)
            report = measure_by(budget, result, wanted, terms)
            if not report.is_within_budget:
                raise AccuracyError(str(report))
            reports.append(report)
        return reports


def as_outputs(returned: Any) -> tuple[torch.Tensor | None, ...]:
    """A kernel's result as a tuple."""
    return returned if isinstance(returned, tuple) else (returned,)


def copies(args: Args) -> Args:
    """The arguments with tensors of their own: some kernels update theirs."""
    return tuple(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args)


def blocks(*sizes: int, **others: Any) -> helion.Config:
    """A config given by its block sizes."""
    return helion.Config(block_sizes=list(sizes), **others)


def tensors(*shapes: Size, dtype: torch.dtype, device: str) -> Args:
    """One random tensor per shape."""
    return tuple(
        random_tensor(shape, dtype, seed=seed, device=device) for seed, shape in enumerate(shapes)
    )


def plane(size: Size, dtype: torch.dtype, device: str) -> Args:
    return tensors(size, dtype=dtype, device=device)


def two_planes(size: Size, dtype: torch.dtype, device: str) -> Args:
    return tensors(size, size, dtype=dtype, device=device)


def plane_and_row(size: Size, dtype: torch.dtype, device: str) -> Args:
    return tensors(size, size[1:], dtype=dtype, device=device)


def plane_and_wide_row(size: Size, dtype: torch.dtype, device: str) -> Args:
    x, row = plane_and_row(size, dtype, device)
    return x, row.float()


PLANES: tuple[Size, ...] = ((0, 5), (5, 0), (1, 1), (15, 17), (16, 16), (17, 15), (37, 53))
ROWS: tuple[Size, ...] = tuple(size for size in PLANES if size[1])
# Only a row of two or more has a reduction to loop over, and a gradient that is not just zero.
LONG_ROWS: tuple[Size, ...] = tuple(size for size in PLANES if size[1] > 1)
LOSSES: tuple[Size, ...] = tuple(size for size in PLANES if size[0] and size[1])
PRODUCTS: tuple[Size, ...] = (
    (0, 5, 7),
    (5, 0, 7),
    (5, 7, 0),
    (1, 1, 1),
    (15, 17, 16),
    (16, 16, 16),
    (17, 15, 33),
    (37, 53, 29),
)
SUMMED_PRODUCTS: tuple[Size, ...] = tuple(size for size in PRODUCTS if size[2])
NORMED_PRODUCTS: tuple[Size, ...] = tuple(size for size in PRODUCTS if size[1])
BATCHES: tuple[Size, ...] = (
    (0, 5, 6, 7),
    (2, 5, 6, 0),
    (1, 1, 1, 1),
    (2, 15, 17, 16),
    (1, 16, 16, 16),
    (3, 17, 15, 33),
)
HEADS: tuple[Size, ...] = (
    (0, 5, 5, 16),
    (1, 1, 1, 16),
    (1, 15, 17, 16),
    (1, 16, 16, 32),
    (2, 17, 33, 24),
)
SQUARE_HEADS: tuple[Size, ...] = (
    (0, 5, 5, 16),
    (1, 1, 1, 16),
    (1, 15, 15, 16),
    (1, 16, 16, 32),
    (2, 37, 37, 24),
)
COMPRESSIONS: tuple[Size, ...] = (
    (0, 5, 16, 16),
    (2, 0, 16, 16),
    (1, 1, 16, 16),
    (2, 15, 16, 16),
    (1, 16, 32, 16),
    (3, 37, 24, 20),
)
LOOKUPS: tuple[Size, ...] = (
    (0, 3, 5),
    (1, 1, 1),
    (15, 7, 17),
    (8, 16, 16),
    (17, 37, 15),
    (53, 5, 37),
)
SEQUENCES: tuple[Size, ...] = (
    (0, 3, 4),
    (5, 0, 6),
    (1, 1, 1),
    (15, 17, 16),
    (16, 16, 16),
    (37, 33, 53),
)


def vanishing(size: Size) -> int:
    """No sum, but results so close to zero that only their absolute error can be small."""
    return 2


def first(size: Size) -> int:
    return size[0]


def last(size: Size) -> int:
    return size[-1]


def larger(size: Size) -> int:
    return max(size)


def contracted(size: Size) -> int:
    """Both sums of a dot compression: over rows, then over columns."""
    _, m, d, _ = size
    return m * d


def middle(size: Size) -> int:
    return size[1]


def keys(size: Size) -> int:
    """A score sums the head dimension, an output element the keys."""
    _, _, n, d = size
    return n * d
