"""Tests of arguments for one form, in Python: where native code cannot be had (``runtime/calls``).

A test says yes only where keys are equal, and takes less time than a key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch

from tilesmith.jit.specialization_key import INT32_RANGE

Match = Callable[..., bool]
COMPARED = (bool, str, torch.dtype, torch.device, type(None))
"""Types whose values are part of the key."""
PLAIN = (*COMPARED, int, float)
"""Types that hold nothing else; of integers the key has the width, of floats nothing."""
HELD = ("__closure__", "__defaults__", "__kwdefaults__")
"""Where functions hold values of their own."""
MAX_WRITTEN = 3
"""With more tensors that are written it is quicker to compare storages than bytes."""


def is_short(name: str) -> str:
    """An expression that tells whether an integer has 32 bits in device code."""
    low, high = INT32_RANGE
    return f"{low} <= {name} <= {high}"


def compile_match(
    names: Sequence[str],
    args: Sequence[Any],
    written: Collection[int],
    constants: Collection[int] = (),
) -> Match:
    """A function of arguments of the same types.

    Those at the ``written`` positions must not overlap with others, ``constants`` count by value.
    """
    scope: dict[str, Any] = {}
    tests: list[str] = []
    for position, (name, argument) in enumerate(zip(names, args)):
        if isinstance(argument, torch.Tensor):
            tests += _tensor_tests(name, argument, scope)
        elif position in constants and type(argument) in PLAIN:
            # By text, as in keys: it tells 0.0 from -0.0.
            tests.append(f"repr({name}) == {repr(argument)!r}")
        elif isinstance(argument, FunctionType):
            tests += _function_tests(name, argument, scope)
        elif type(argument) is int:
            tests.append(f"({is_short(name)}) is {eval(is_short('n'), {'n': argument})}")
        elif type(argument) is not float:
            scope[f"{name}_value"] = argument
            tests.append(f"{name} == {name}_value")
    tensors = {n: tensor for n, tensor in zip(names, args) if isinstance(tensor, torch.Tensor)}
    lines = [
        f"def match({', '.join(names)}):",
        f"    if not ({' and '.join(tests)}): return False",
        *(f"    {line}" for line in _are_apart(tensors, [names[i] for i in sorted(written)])),
    ]
    exec("\n".join(lines), scope)
    return scope["match"]


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
        # No process has accelerators of two kinds, and what is on none of them has number -1.
        return [*tests, f"{name}.get_device() == {tensor.get_device()}"]
    scope[f"{name}_device"] = tensor.device
    return [*tests, f"{name}.device == {name}_device"]


def _function_tests(name: str, function: FunctionType, scope: dict[str, Any]) -> list[str]:
    """Tests for the same code over the same globals that holds no values of its own."""
    scope[f"{name}_code"], scope[f"{name}_globals"] = function.__code__, function.__globals__
    return [
        f"{name}.__code__ is {name}_code",
        f"{name}.__globals__ is {name}_globals",
        *(f"not {name}.{held}" for held in HELD),
    ]


def _are_apart(tensors: Mapping[str, torch.Tensor], written: Sequence[str]) -> Iterator[str]:
    """Statements that return whether the written tensors overlap with no other.

    Sizes and strides are known by then, so the address of a tensor tells which bytes it has.
    """
    if len(tensors) < 2 or not written:
        yield "return True"
        return
    if len(written) > MAX_WRITTEN:
        yield f"return {storages_differ(list(tensors))}"
        return
    num_bytes = {name: _num_bytes(tensor) for name, tensor in tensors.items()}
    for name in tensors:
        yield f"{name} = {name}.data_ptr()"
    for name in written:
        yield f"{name}_end = {name} + {num_bytes[name]}"
        others = {num_bytes[other] for other in tensors if other != name}
        yield from (f"{name}_after_{count} = {name} - {count}" for count in sorted(others))
    overlaps = [
        f"{name}_after_{num_bytes[other]} < {other} < {name}_end"
        for name in written
        for other in tensors
        if other != name
    ]
    yield f"return not ({' or '.join(overlaps)})"


def _num_bytes(tensor: torch.Tensor) -> int:
    """From the first to the last element."""
    if not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size()


def storages_differ(names: Sequence[str]) -> str:
    """An expression that tells whether no two of these tensors share storage."""
    addresses = [f"{name}.untyped_storage().data_ptr()" for name in names]
    if len(names) == 2:
        return f"{addresses[0]} != {addresses[1]}"
    return f"len({{{', '.join(addresses)}}}) == {len(names)}" if names else "True"
