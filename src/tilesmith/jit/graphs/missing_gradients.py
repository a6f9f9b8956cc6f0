"""Calls whose arguments require gradients, of kernels that have none: said, or refused."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.kernel_warnings import GradientDropped
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.specialization_key import leaves


def check_gradients(
    definition: KernelDefinition, written: Collection[int] | None, args: tuple[Any, ...]
) -> None:
    """Warn, or raise where the setting says so; raise where a leaf would be changed.

    ``written``: positions of arguments; None of a kernel of several launches.
    """
    is_derivable = written is not None
    wanted = list(_requiring(definition, args))
    for position, name, tensor in wanted:
        if position in (written or ()) and tensor.is_leaf:
            raise errors.LeafChangedInPlace(function=definition.name, argument=name)
    function, argument = definition.name, wanted[0][1]
    choice = definition.settings.missing_gradient
    if choice == "error":
        raise errors.GradientNotAvailable(function=function, argument=argument)
    if choice == "warn" or (choice == "derive" and not is_derivable):
        code = definition.fn.__code__
        loc = SourceLocation(code.co_filename, code.co_firstlineno, function)
        definition.warnings.warn(GradientDropped, loc=loc, function=function, argument=argument)


def _requiring(definition: KernelDefinition, args: tuple[Any, ...]) -> Any:
    for position, (name, argument) in enumerate(zip(definition.parameters, args)):
        for place, leaf in leaves(argument, name):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                yield position, place, leaf
