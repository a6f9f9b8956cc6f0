# type: ignore
"""Torch functions of the table, called in forms that it does not have."""

from __future__ import annotations

import torch
from torch.nn import functional

import tilesmith as helion
import tilesmith.language as hl
from tests.errors.case import XX, Case
from tilesmith import exc


@helion.kernel
def argument_without_a_meaning(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :].round(digits=2)
    return out


@helion.kernel
def norm_of_singular_values(x):
    out = x.new_empty(x.size(0))
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.linalg.norm(x[tile, :], ord="nuc", dim=(0, 1))
    return out


@helion.kernel
def reduction_by_an_unknown_name(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = functional.mse_loss(x[tile, :], x[tile, :], reduction="median")
    return out


@helion.kernel
def shifted_floats(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :] << 1
    return out


@helion.kernel
def inverted_floats(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = ~x[tile, :]
    return out


CASES = [
    Case(argument_without_a_meaning, exc.UnsupportedTorchArgument, XX),
    Case(norm_of_singular_values, exc.UnsupportedTorchArgument, XX),
    Case(reduction_by_an_unknown_name, exc.UnsupportedTorchArgument, XX),
    Case(shifted_floats, exc.UnsupportedTorchArgument, XX),
    Case(inverted_floats, exc.UnsupportedTorchArgument, XX),
]
