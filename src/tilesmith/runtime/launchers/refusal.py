"""Says which value cannot be handed to compiled code, and why."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

import tilesmith.exc as errors
from tilesmith.artifacts import LaunchParameter
from tilesmith.runtime.device import is_numbered

INT64_LIMIT = 1 << 63
NOT_READ = (ValueError, RuntimeError)
"""What reading the address of a tensor without memory raises, by native code or by torch."""
NO_MEMORY = "a tensor without memory (of fake mode, or under a transform of torch.func)"
AS_OPERATOR = (
    'call an operator instead: torch.library.custom_op("mine::name", kernel, mutates_args=());\n'
    "for torch.func.grad, operators in a torch.autograd.Function with setup_context"
)


def refuse(
    parameters: Sequence[LaunchParameter], values: Sequence[Any], device: torch.device
) -> NoReturn:
    """Raise for the first value that code on the device cannot take as it is."""
    for parameter, value in zip(parameters, values):
        problem = _problem_of(value, device)
        if problem:
            where = "the CPU" if device.type == "cpu" else str(device)
            raise errors.UnsupportedArgumentType(
                argument=parameter.source,
                kind=problem,
                expected=f"a dense tensor on {where}, or a number of at most 64 bits",
                fix=AS_OPERATOR if problem == NO_MEMORY else "",
            )
    raise errors.InternalError(problem="arguments of compiled code cannot be handed over")


def refuse_without_memory(
    parameters: Sequence[LaunchParameter], values: Sequence[Any], device: torch.device
) -> None:
    """Raise for a tensor that has no memory though it has elements."""
    if any(lacks_memory(value) for value in values if isinstance(value, torch.Tensor)):
        refuse(parameters, values, device)


def lacks_memory(tensor: torch.Tensor) -> bool:
    """Whether it only stands for others: compiled code would write to address 0."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns for some, and refuses for others
            return not tensor.data_ptr() and bool(tensor.numel())
    except RuntimeError:
        return True


def _problem_of(value: Any, device: torch.device) -> str:
    if isinstance(value, torch.Tensor):
        is_other = is_numbered(device) and value.device.index != device.index
        if is_other or value.device.type != device.type:
            return f"a tensor on {value.device}"
        if lacks_memory(value):
            return NO_MEMORY
        return "a view with its sign flipped lazily (call .resolve_neg())" if value.is_neg() else ""
    is_wide = isinstance(value, int) and not -INT64_LIMIT <= value < INT64_LIMIT
    return "an integer of more than 64 bits" if is_wide else ""
