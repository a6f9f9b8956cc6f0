"""What may have gone wrong in an implementation, in a sentence for the verdict."""

from __future__ import annotations

import torch

from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.numerics.doctor.errors import SAME_FORMULA
from tilesmith.numerics.doctor.findings import OURS, Examination, Outputs
from tilesmith.numerics.doctor.hypotheses.mutations import find_mutation
from tilesmith.numerics.doctor.hypotheses.patterns import describe_resemblance
from tilesmith.numerics.doctor.reruns import TooSlowError
from tilesmith.passes.roundings import CannotWidenError

ROUNDINGS = 16.0
"""Of the result's type, that a pattern may be off by."""


def name_difference(examination: Examination, who: str, output: str) -> str:
    """A sentence with a space before it, or nothing.

    Of other implementations it is the change of the kernel that gives their result; of the kernel,
    the one after which it would give what the reference does.
    """
    subject = examination.subject
    truth = {name: tensor.truth for name, tensor in subject.reference.tensors.items()}
    wanted = truth if who == OURS else examination.wide.get(who)
    change = _find_change(examination, wanted) if wanted is not None else ""
    if change:
        made = "It would give what the reference does" if who == OURS else "The kernel gives that"
        return f" {made} {change}."
    found = (examination.wide.get(who) or examination.outputs[who])[output]
    pattern = _resemblance(truth[output], found, subject.reference.tensors[output].written)
    return f" Look first: {pattern}." if pattern else ""


def _find_change(examination: Examination, wanted: Outputs) -> str:
    try:
        return find_mutation(examination.subject, wanted)
    except (BaseError, CannotWidenError, TooSlowError, RuntimeError, MemoryError):
        return ""  # there is no fp64 form to change


def _resemblance(truth: torch.Tensor, got: torch.Tensor, written: torch.Tensor) -> str:
    if not got.is_floating_point() or not bool(written.all()):
        return ""
    closeness = max(SAME_FORMULA, ROUNDINGS * torch.finfo(got.dtype).eps)
    return describe_resemblance(truth, got.to(torch.float64), closeness)
