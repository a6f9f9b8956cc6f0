"""A suite small enough for tests: two operators on little tensors."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.bench.case import Arguments, Input, Operator, Suite
from tilesmith.numerics.inputs import random_tensor

NAME = "tests.bench.tiny_suite"


@helion.kernel(static_shapes=True)
def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 2
    return out


def double_by_function(x: torch.Tensor) -> torch.Tensor:
    """A function that calls a kernel."""
    return double(x)


def double_by_hand(x: torch.Tensor) -> torch.Tensor:
    return x + x


def eager_double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def make_vector(size: int) -> Input:
    def make(device: torch.device, dtype: torch.dtype) -> Arguments:
        return (random_tensor((size,), dtype, seed=size, device=device),)

    return Input(str(size), make, torch.float32)


def double_operator() -> Operator:
    return Operator(
        "double",
        [make_vector(size) for size in (1, 100, 1009)],
        {"double": f"{NAME}:double"},
        eager_double,
        others={"by_hand": f"{NAME}:double_by_hand"},
        flops=lambda x: float(x.numel()),
        dtypes=(torch.float32, torch.float64),
    )


def sum_operator() -> Operator:
    return Operator(
        "sum",
        [make_vector(100)],
        {"one": f"{NAME}:double", "two": f"{NAME}:double_by_function"},
        torch.sum,
        reduction_length=lambda x: x.numel(),
        devices=("cpu",),
    )


def crash(x: torch.Tensor) -> torch.Tensor:
    os.kill(os.getpid(), signal.SIGSEGV)
    return x


def make_badly(device: torch.device, dtype: torch.dtype) -> Arguments:
    raise LookupError("the data set is not there")


def fragile_operator() -> Operator:
    """Its eager form kills the process, its second input cannot be made, its third is too large."""
    huge = replace(make_vector(8), label="huge", min_memory_gb=1e6)
    return Operator(
        "fragile",
        [make_vector(8), Input("none", make_badly, torch.float32), huge],
        {"double": f"{NAME}:double_by_function"},
        crash,
        exact=lambda x: x.double() * 2,
    )


def suite() -> Suite:
    return Suite("tiny", [double_operator(), sum_operator(), fragile_operator()])
