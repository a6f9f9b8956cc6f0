"""What a Config may say about the other forms of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from tilesmith.ir.function import Function
from tilesmith.schedule.rules import ScheduleRules, TargetedKernel

Split = Callable[[Function, str], Function | None]
"""Makes the form of a function that has this name; None where it has none."""


class OfKernel(Protocol):
    """A specification."""

    kernel: TargetedKernel


Spec = TypeVar("Spec", bound=OfKernel)


def other_forms(
    kernel: TargetedKernel, split: Split, make: Callable[[Function, ScheduleRules], Spec]
) -> dict[str, Spec]:
    """Specifications by name: of other ways to run the function, and of forms that it is split in.

    A form may have rules of its own: it may be run in another way than the function is.
    """
    rules, function = kernel.rules, kernel.outline.function
    found = {name: make(function, own) for name, own in rules.other_ways(kernel).items()}
    for name in rules.row_forms(kernel):
        form = split(function, name)
        plain = None if form is None else make(form, rules)
        own = None if plain is None else rules.rules_of_form(name, plain.kernel)
        if form is not None and plain is not None and own is not None:
            found[name] = plain if own is rules else make(form, own)
    return found
