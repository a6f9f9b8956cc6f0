"""Whether a kernel stores into memory that its caller passed in."""

from __future__ import annotations

from collections.abc import Collection

from tilesmith.analysis.effects import tensors_written
from tilesmith.ir.function import Function
from tilesmith.ir.types import TensorType


def writes_arguments(function: Function, names: Collection[str]) -> bool:
    """Whether a tensor that is written shares memory with an argument of these names."""
    tensors = {p.value.name: p for p in function.parameters if isinstance(p.value.type, TensorType)}
    passed = {
        p.value.tensor.alias
        for p in tensors.values()
        if p.source.replace("[", ".").partition(".")[0] in names
    }
    written = [tensors[name] for name in tensors_written(function)]
    return any(p.value.tensor.alias in passed for p in written)
