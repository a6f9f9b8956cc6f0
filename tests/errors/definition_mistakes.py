# type: ignore
"""Functions that cannot be kernels, and calls that kernels cannot take."""

from __future__ import annotations

import functools
import math

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.errors.case import Case, X, row
from tilesmith import exc


@helion.kernel
def copy(x, y=None):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
    return out


@helion.kernel
def fill(n, value):
    out = torch.empty([n])
    for tile in hl.tile(n):
        out[tile] = value
    return out


@helion.kernel
def add(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


def define_with_any_keywords():
    @helion.kernel
    def total(**tensors):
        return tensors

    return total


def define_from_a_class():
    return helion.kernel(torch.nn.ReLU)


def define_from_a_partial():
    return helion.kernel(functools.partial(math.pow, 2))


def define_with_a_closure():
    factor = 2.0

    @helion.kernel
    def scale(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * factor
        return out

    return scale


def define_with_a_reserved_local():
    @helion.kernel
    def scale(x):
        math = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            math[tile] = x[tile]
        return math

    return scale


def define_with_config_and_configs():
    config = helion.Config(block_sizes=[16])
    return helion.kernel(copy.fn, config=config, configs=[config])


def define_with_an_unknown_setting():
    return helion.kernel(copy.fn, static_shape=False)


def run_source_from_exec():
    source = """
@helion.kernel
def doubled(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out
"""
    namespace = {"helion": helion, "hl": hl, "torch": torch}
    exec(source, namespace)
    return namespace["doubled"](torch.ones(4))


def twice(function):
    return function


@helion.kernel
@twice
def decorated_below(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
    return out


@helion.kernel
def apply_graph(x, graph):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = graph(x[tile])
    return out


def graph_with_state():
    return torch.fx.symbolic_trace(torch.nn.Linear(8, 8))


def define_from_a_lambda():
    return helion.kernel(lambda x: x)


CASES = [
    Case(define_with_any_keywords, TypeError),
    Case(define_from_a_class, AssertionError, has_place=False),
    Case(define_from_a_partial, AssertionError, has_place=False),
    Case(define_with_a_closure, exc.ClosuresNotSupported),
    Case(define_with_a_reserved_local, exc.NamingConflict),
    Case(define_with_config_and_configs, AssertionError, has_place=False),
    Case(define_with_an_unknown_setting, TypeError),
    Case(run_source_from_exec, OSError, has_place=False),
    Case(decorated_below, exc.DecoratorAfterHelionKernelDecorator, X),
    Case(copy, TypeError, (row(), object()), has_place=False),
    Case(copy, TypeError, (row(), 1, 2), has_place=False),
    Case(copy, TypeError, has_place=False),
    Case(fill, exc.NoTensorArgs, (4, 1.0), has_place=False),
    Case(
        add, exc.TensorsOnDifferentDevices, (row(), torch.ones(8, device="meta")), has_place=False
    ),
    Case(apply_graph, exc.GraphModuleUnsupportedOps, (row(), graph_with_state()), has_place=False),
    Case(define_from_a_lambda, AssertionError),
    Case(copy, exc.UnsupportedArgumentType, (torch.ones(8, dtype=torch.complex64),)),
]
