# type: ignore
"""Values that loops and branches cannot carry."""

# ruff: noqa: B007, SIM108

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.errors.case import Case, X, row
from tilesmith import exc


@helion.kernel
def carried_value_changes_dtype(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        acc = hl.zeros([tile], dtype=torch.float32)
        for inner in hl.tile(x.size(0)):
            acc = acc + x[tile].to(torch.float64)
        out[tile] = acc
    return out


@helion.kernel
def carried_value_changes_shape(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        acc = x[tile]
        for inner in hl.tile(x.size(0)):
            acc = acc[:, None] + x[inner][None, :]
        out[tile] = acc
    return out


@helion.kernel
def branches_disagree(x, n):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        if tile.begin < n:
            value = x[tile]
        else:
            value = x[tile].to(torch.bfloat16)
        out[tile] = value
    return out


@helion.kernel
def flag_becomes_a_number(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        is_found = False
        for inner in hl.tile(x.size(0)):
            is_found = 2
        out[tile] = x[tile] * is_found
    return out


@helion.kernel
def tensor_condition(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        if x[tile] > 0:
            out[tile] = x[tile]
    return out


@helion.kernel
def and_of_tensors(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        mask = x[tile] > 0 and x[tile] < 1
        out[tile] = torch.where(mask, x[tile], 0)
    return out


@helion.kernel
def host_tensor_condition(x, bias):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile]
        if bias:
            value = value + bias[tile]
        out[tile] = value
    return out


def positive_part(value):
    if value > 0:
        return value
    return value * 0


@helion.kernel
def condition_in_a_helper(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = positive_part(x[tile])
    return out


CASES = [
    Case(carried_value_changes_dtype, exc.ControlFlowTensorMismatch, X),
    Case(carried_value_changes_shape, exc.ControlFlowTensorMismatch, X),
    Case(branches_disagree, exc.ControlFlowTensorMismatch, (row(), 4)),
    Case(flag_becomes_a_number, exc.CantCombineTypesInControlFlow, X),
    Case(tensor_condition, exc.MultiElementCondition, X),
    Case(and_of_tensors, exc.TypeInferenceError, X),
    Case(host_tensor_condition, exc.HostTensorDirectUsage, (row(), row())),
    Case(condition_in_a_helper, exc.MultiElementCondition, X),
]
