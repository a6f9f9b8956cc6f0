# type: ignore
# ruff: noqa: B023
"""Combine functions that do not combine."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.errors.case import XX, Case
from tilesmith import exc


def sum_of_one(a, b):
    return a + torch.sum(b)


@helion.kernel
def reduction_inside(x):
    out = torch.empty_like(x[:, 0])
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.reduce(sum_of_one, x[tile, :], dim=1)
    return out


@helion.kernel
def load_inside(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = hl.associative_scan(lambda a, b: a * b + x[0, 0], x[tile, :], 1)
    return out


@helion.kernel
def tensor_from_outside(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        out[tile, :] = hl.associative_scan(lambda a, b: a + row, row, 1)
    return out


@helion.kernel
def arange_inside(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = hl.associative_scan(lambda a, b: a + hl.arange(8), x[tile, :], 1)
    return out


@helion.kernel
def too_few_results(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        pair = (x[tile, :], x[tile, :])
        out[tile, :], _ = hl.associative_scan(lambda a, b: a[0] + b[1], pair, 1)
    return out


@helion.kernel
def three_arguments(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        pair = (x[tile, :], x[tile, :])
        out[tile, :], _ = hl.associative_scan(lambda a, b, c: (a + b, c), pair, 1)
    return out


@helion.kernel
def no_function(x):
    out = torch.empty_like(x[:, 0])
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.reduce("sum", x[tile, :], dim=1)
    return out


@helion.kernel
def host_tensor_to_combine(x):
    out = torch.empty_like(x[:, 0])
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.reduce(torch.add, x, dim=1)
    return out


@helion.kernel
def no_tensor_at_all(x):
    out = torch.empty_like(x[:, 0])
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.reduce(torch.add, (), dim=1)
    return out


@helion.kernel
def different_shapes(x):
    out = torch.empty_like(x[:, 0])
    for tile in hl.tile(x.size(0)):
        pair = (x[tile, :], x[tile, :4])
        out[tile], _ = hl.reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]), pair, dim=1)
    return out


@helion.kernel
def others_for_three(x):
    out = torch.empty_like(x[:, 0])
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.reduce(torch.maximum, x[tile, :], dim=1, other=(0, 1, 2))
    return out


@helion.kernel
def other_that_is_a_tensor(x):
    out = torch.empty_like(x[:, 0])
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.reduce(torch.maximum, x[tile, :], dim=1, other=x[tile, 0])
    return out


@helion.kernel
def no_such_dimension(x):
    out = torch.empty_like(x[:, 0])
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.reduce(torch.maximum, x[tile, :], dim=2)
    return out


CASES = [
    Case(reduction_inside, exc.NotAllowedInHelperFunction, XX),
    Case(load_inside, exc.NotAllowedInHelperFunction, XX),
    Case(tensor_from_outside, exc.NotAllowedInHelperFunction, XX),
    Case(arange_inside, exc.NotAllowedInHelperFunction, XX),
    Case(too_few_results, exc.InvalidArgumentKind, XX),
    Case(three_arguments, exc.InvalidArgumentKind, XX),
    Case(no_function, exc.InvalidArgumentKind, XX),
    Case(host_tensor_to_combine, exc.InvalidArgumentKind, XX),
    Case(no_tensor_at_all, exc.InvalidArgumentValue, XX),
    Case(different_shapes, exc.ShapeMismatch, XX),
    Case(others_for_three, exc.InvalidArgumentValue, XX),
    Case(other_that_is_a_tensor, exc.InvalidArgumentKind, XX),
    Case(no_such_dimension, exc.ReductionDimInvalidForShape, XX),
]
