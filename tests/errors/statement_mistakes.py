# type: ignore
"""Statements that device code cannot contain."""

# ruff: noqa: B007, PERF203, PLW0603, RET503

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.errors.case import Case, X, row
from tilesmith import exc

CALLS = 0


@helion.kernel
def return_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
        return out


@helion.kernel
def with_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        with torch.no_grad():
            out[tile] = x[tile]
    return out


@helion.kernel
def try_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        try:
            out[tile] = x[tile]
        except RuntimeError:
            out[tile] = 0
    return out


@helion.kernel
def break_in_the_grid(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        if tile.begin > 2:
            break
        out[tile] = x[tile]
    return out


@helion.kernel
def del_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile]
        out[tile] = value
        del value
    return out


@helion.kernel
def raise_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        raise ValueError("no")
    return out


@helion.kernel
def import_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        import string

        out[tile] = x[tile] + len(string.digits)
    return out


@helion.kernel
def global_in_a_loop(x):
    global CALLS
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        CALLS = 1
        out[tile] = x[tile]
    return out


@helion.kernel
def def_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):

        def double(v):
            return v * 2

        out[tile] = double(x[tile])
    return out


@helion.kernel
def walrus_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = (value := x[tile]) + value
    return out


@helion.kernel
def chained_assignment(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        a = b = x[tile]
        out[tile] = a + b
    return out


@helion.kernel
def nested_unpacking(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        a, (b, c) = x[tile], (x[tile], x[tile])
        out[tile] = a + b + c
    return out


@helion.kernel
def item_in_a_loop(x, s):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * s.item()
    return out


@helion.kernel
def while_with_else(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        v = x[tile]
        while v.sum() > 1:
            v = v - 1
        else:  # noqa: PLW0120
            v = v + 1
        out[tile] = v
    return out


CASES = [
    Case(return_in_a_loop, exc.NotAllowedOnDevice, X),
    Case(with_in_a_loop, exc.NotAllowedOnDevice, X),
    Case(try_in_a_loop, exc.NotAllowedOnDevice, X),
    Case(break_in_the_grid, exc.UnsupportedPythonType, X),
    Case(del_in_a_loop, exc.StatementNotSupported, X),
    Case(raise_in_a_loop, exc.StatementNotSupported, X),
    Case(import_in_a_loop, exc.StatementNotSupported, X),
    Case(global_in_a_loop, exc.GlobalMutation, X),
    Case(def_in_a_loop, exc.StatementNotSupported, X),
    Case(walrus_in_a_loop, exc.StatementNotSupported, X),
    Case(chained_assignment, exc.AssignmentMultipleTargets, X),
    Case(nested_unpacking, exc.InvalidAssignment, X),
    Case(item_in_a_loop, exc.NotAllowedOnDevice, (row(), torch.tensor(2.0))),
    Case(while_with_else, exc.StatementNotSupported, X),
]
