"""Programs that must be refused, with the class that says why, before anything runs."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import randn
from tilesmith import exc


@helion.kernel
def reduced_without_keepdim(a: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(a)
    for t, u in hl.tile(a.size()):
        out[t, u] = a[t, u] - a[t, u].amax(1)
    return out


@helion.kernel
def slices_of_unequal_extent(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(a)
    for t in hl.tile(a.size(0)):
        out[t, :] = a[t, :] + b[t, :]
    return out


@helion.kernel
def two_tiles_of_one_size(a: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(a)
    for t, u in hl.tile([a.size(0), a.size(0)], block_size=[8, 8]):
        out[t] = a[t] + a[u]
    return out


@helion.kernel
def stored_by_function_then_read(a: torch.Tensor) -> torch.Tensor:
    part, out = torch.empty_like(a), torch.empty_like(a)
    for t in hl.tile(a.size(0)):
        hl.store(part, [t], a[t])
    for t in hl.tile(a.size(0)):
        out[t] = part[t]
    return out


@helion.kernel
def flipped(a: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(a)
    for t in hl.tile(a.size(0)):
        out[t] = torch.flip(a[t], [0])
    return out


@helion.kernel
def tensor_as_condition(a: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(a)
    for t in hl.tile(a.size(0)):
        value = a[t]
        if value > 0:
            value = value + 1
        out[t] = value
    return out


@helion.kernel
def number_or_tensor_by_branch(a: torch.Tensor, n: int) -> torch.Tensor:
    out = torch.empty_like(a)
    for t in hl.tile(a.size(0)):
        count = 0
        if n > 3:
            count = a
        out[t] = a[t] + count
    return out


@helion.kernel
def break_of_the_grid(a: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(a)
    for i in hl.grid(a.size(0)):
        if a[i] > 3:
            break
        out[i] = a[i]
    return out


@helion.kernel
def pattern_of_a_class(a: torch.Tensor, n: int) -> torch.Tensor:
    out = torch.empty_like(a)
    for t in hl.tile(a.size(0)):
        match n:
            case int():
                out[t] = a[t]
    return out


@helion.kernel
def block_registered_on_the_device(a: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(a)
    for t in hl.tile(a.size(0)):
        block = hl.register_block_size(8)
        for u in hl.tile(a.size(0), block_size=block):
            out[u] = a[u]
        out[t] = a[t]
    return out


@helion.kernel
def runtime_number_as_constant(a: torch.Tensor, n: int) -> torch.Tensor:
    out = torch.empty_like(a)
    for t in hl.tile(a.size(0)):
        if hl.constexpr(n > 3):  # pyright: ignore[reportCallIssue]
            out[t] = a[t]
    return out


SQUARE = randn(8, 8)
REJECTED = (
    (reduced_without_keepdim, (SQUARE,), exc.ShapeMismatch),
    (slices_of_unequal_extent, (randn(5, 12), randn(5, 13)), exc.ShapeMismatch),
    (two_tiles_of_one_size, (randn(16),), exc.ShapeMismatch),
    (stored_by_function_then_read, (randn(9),), exc.LoopDependencyError),
    (flipped, (randn(9),), exc.UnsupportedIndexRemapping),
    (tensor_as_condition, (randn(9),), exc.MultiElementCondition),
    (number_or_tensor_by_branch, (randn(9), 5), exc.CantCombineTypesInControlFlow),
    (break_of_the_grid, (randn(9),), exc.UnsupportedPythonType),
    (pattern_of_a_class, (randn(9), 5), exc.StatementNotSupported),
    (block_registered_on_the_device, (randn(9),), exc.RegisterOnDevice),
    (runtime_number_as_constant, (randn(9), 5), exc.ShapeSpecializingCall),
)


@pytest.mark.parametrize(
    ("kernel", "args", "error"), REJECTED, ids=[kernel.name for kernel, _, _ in REJECTED]
)
def test_is_refused_when_bound(kernel, args, error) -> None:
    with pytest.raises(error) as caught:
        kernel.bind(args)
    text = str(caught.value)
    assert "test_rejections.py" in text
    assert "^" in text
