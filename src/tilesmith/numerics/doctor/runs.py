"""Runs implementations on copies of the arguments, and finds the outputs in what they give."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tilesmith.frontend.containers import tensors_in
from tilesmith.numerics.doctor.diagnosed_call import CallPlace
from tilesmith.numerics.doctor.findings import Outputs
from tilesmith.numerics.doctor.host_run import copy_arguments
from tilesmith.numerics.judge_report import bits_of


class WrongFormError(Exception):
    """An implementation does not give what the kernel gives."""


class OutputReader:
    """Runs implementations of one call."""

    def __init__(self, places: Sequence[CallPlace]) -> None:
        self._places = places

    def run(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Outputs:
        """The outputs by name; arguments stay as they are."""
        copies = copy_arguments(args)
        try:
            with torch.no_grad():
                results = list(tensors_in(function(*copies)))
        except SystemExit as error:
            raise WrongFormError(f"it called sys.exit({error.code!r})") from error
        _wait(copies)
        given = list(tensors_in(copies))
        found = {place.name: _find(place, results, given) for place in self._places}
        outputs = {name: tensor.detach().clone() for name, tensor in found.items()}
        for tensor in found.values():
            _poison(tensor.detach())
        return outputs


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under torch.compile."""
    return torch.compile(function, dynamic=False)


def without_defaults(
    function: Callable[..., Any], signature: inspect.Signature
) -> Callable[..., Any]:
    """The function for all arguments of a kernel; those it does not know must have their default.

    PyTorch's form of a kernel often leaves out what is optional there.
    """
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return function
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in known):
        return function
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    num_known = sum(parameter.kind in positional for parameter in known)
    defaults = [parameter.default for parameter in signature.parameters.values()]

    def run(*args: Any) -> Any:
        rest = zip(args[num_known:], defaults[num_known:])
        is_all_default = all(argument is default for argument, default in rest)
        return function(*(args[:num_known] if is_all_default else args))

    return run


def _find(
    place: CallPlace, results: Sequence[torch.Tensor], given: Sequence[torch.Tensor]
) -> torch.Tensor:
    if place.result < 0:
        return given[place.argument]
    if place.result >= len(results):
        raise WrongFormError(f"it returns {len(results)} tensors; {place.name} is missing")
    return results[place.result]


def _poison(tensor: torch.Tensor) -> None:
    """Memory that the next run is likely to get back must not hold the right answer."""
    if tensor.is_contiguous():
        bits_of(tensor).fill_(-1 if tensor.itemsize > 1 else 0xFF)


def _wait(args: tuple[Any, ...]) -> None:
    if any(tensor.is_cuda for tensor in tensors_in(args)):
        torch.cuda.synchronize()
