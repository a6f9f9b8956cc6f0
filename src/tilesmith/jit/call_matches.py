"""A quick test whether arguments have the form of earlier ones, in place of making their key.

It compares with constants and asks tensors for less than a key needs; False only means that the key
decides. Most calls repeat one of a few forms, which the shape of the first tensor tells apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch

from tilesmith.jit.specialization import INT32_RANGE

Match = Callable[..., bool]

COMPARED = (bool, str, torch.dtype, torch.device, type(None))
"""Types whose values are part of the key."""
PLAIN = (*COMPARED, int, float)
"""Types that hold nothing else; of integers the key has the width, of floats nothing."""


def first_tensor(types: Sequence[type]) -> int | None:
    """The position of the first tensor, where arguments of these types may match others."""
    simple = (*PLAIN, FunctionType)
    if not all(issubclass(kind, torch.Tensor) or kind in simple for kind in types):
        return None
    return next((i for i, kind in enumerate(types) if issubclass(kind, torch.Tensor)), None)


def is_short(name: str) -> str:
    """An expression that tells whether an integer has 32 bits in device code."""
    low, high = INT32_RANGE
    return f"{low} <= {name} <= {high}"


def compile_match(names: Sequence[str], args: Sequence[Any], *, is_alias_sensitive: bool) -> Match:
    """A function of arguments of the same types; where aliases matter, there must be none."""
    scope: dict[str, Any] = {}
    tests: list[str] = []
    for name, argument in zip(names, args):
        if isinstance(argument, torch.Tensor):
            tests += _tensor_tests(name, argument, scope)
        elif isinstance(argument, FunctionType):
            tests += _function_tests(name, argument, scope)
        elif type(argument) is int:
            tests.append(f"({is_short(name)}) is {eval(is_short('n'), {'n': argument})}")
        elif type(argument) is not float:
            scope[f"{name}_value"] = argument
            tests.append(f"{name} == {name}_value")
    if is_alias_sensitive:
        tensors = [n for n, argument in zip(names, args) if isinstance(argument, torch.Tensor)]
        tests.append(storages_differ(tensors))
    return eval(f"lambda {', '.join(names)}: {' and '.join(tests)}", scope)


def _tensor_tests(name: str, tensor: torch.Tensor, scope: dict[str, Any]) -> list[str]:
    """Tests that sizes, strides, dtype and device are the same; what differs most comes first."""
    scope[f"{name}_shape"], scope[f"{name}_dtype"] = tuple(tensor.shape), tensor.dtype
    tests = [f"{name}.shape == {name}_shape"]
    if tensor.is_contiguous() and min(tensor.shape, default=0) > 1:
        # Only one choice of strides is contiguous, unless a size is 0 or 1.
        tests.append(f"{name}.is_contiguous()")
    else:
        scope[f"{name}_strides"] = tensor.stride()
        tests.append(f"{name}.stride() == {name}_strides")
    tests.append(f"{name}.dtype is {name}_dtype")
    if tensor.is_cpu:
        return [*tests, f"{name}.is_cpu"]
    if tensor.is_cuda:
        return [*tests, f"{name}.is_cuda and {name}.get_device() == {tensor.get_device()}"]
    scope[f"{name}_device"] = tensor.device
    return [*tests, f"{name}.device == {name}_device"]


def _function_tests(name: str, function: FunctionType, scope: dict[str, Any]) -> list[str]:
    """Tests for the same code over the same globals that holds no values of its own."""
    scope[f"{name}_code"], scope[f"{name}_globals"] = function.__code__, function.__globals__
    return [
        f"{name}.__code__ is {name}_code",
        f"{name}.__globals__ is {name}_globals",
        *(f"not {name}.{held}" for held in ("__closure__", "__defaults__", "__kwdefaults__")),
    ]


def storages_differ(names: Sequence[str]) -> str:
    """An expression that tells whether no two of these tensors share storage."""
    addresses = [f"{name}.untyped_storage().data_ptr()" for name in names]
    if len(names) == 2:
        return f"{addresses[0]} != {addresses[1]}"
    return f"len({{{', '.join(addresses)}}}) == {len(names)}" if names else "True"
