"""What tolerance the types and sums of a kernel justify, in the words of ``assert_close``."""

from __future__ import annotations

import torch

from tilesmith.dtypes import DTYPES_BY_NAME
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.numerics.doctor.findings import Examination
from tilesmith.numerics.doctor.sensitivity import ErrorSources
from tilesmith.numerics.float_standard import rms
from tilesmith.numerics.tolerance import Budget, derive_budget

BETWEEN_TWO = 2
"""Two results that are each off by their allowance differ by as much as both together."""


def justified_tolerance(examination: Examination, sources: tuple[ErrorSources, ...]) -> str:
    """For each float output, what two right results may differ by."""
    reference = examination.subject.reference
    parts: list[str] = []
    for name, tensor in reference.tensors.items():
        if not tensor.native.is_floating_point():
            continue
        budget = _budget(tensor.native.dtype, reference.sum_length, sources, name)
        known = tensor.truth[tensor.written & tensor.truth.isfinite()]
        scale = rms(known.abs()) if known.numel() else 0.0
        rtol = BETWEEN_TWO * budget.value_coefficient
        atol = BETWEEN_TWO * (budget.scale_coefficient * scale + budget.absolute_floor)
        parts.append(f"{name}: rtol={rtol:.1e}, atol={atol:.1e}")
    return "; ".join(parts)


def _budget(
    dtype: torch.dtype, sum_length: int, sources: tuple[ErrorSources, ...], output: str
) -> Budget:
    found = next((s for s in sources if s.output == output), None)
    roundings = () if found is None else (*found.roundings, *found.sums)
    narrow = [DTYPES_BY_NAME[s.dtype] for s in roundings]
    coarse = [to_torch(d) for d in narrow if d.is_low_precision_float]
    return derive_budget(dtype, sum_length, coarse)
