"""What is searched, in words: the arguments of a call, and how many Configs there are."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tilesmith.schedule.spec import ConfigSpec

MAX_ITEMS = 6
"""Of a list argument that are shown."""


def arguments_text(names: Sequence[str], arguments: Sequence[Any]) -> str:
    """One line: names with types and shapes.

    Example:
        >>> arguments_text(("scale", "biases"), (0.5, [1, None]))
        'scale: 0.5, biases: [1, None]'
    """
    return ", ".join(f"{name}: {_argument_text(value)}" for name, value in zip(names, arguments))


def space_size(spec: ConfigSpec) -> float:
    """How many combinations of choices there are; some of them do not fit together."""
    return prod(float(dimension.fragment.cardinality) for dimension in spec.dimensions())


def _argument_text(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "stride"):
        return _tensor_text(value)
    if isinstance(value, (list, tuple)):
        listed = [_argument_text(item) for item in value[:MAX_ITEMS]]
        more = ["…"] if len(value) > MAX_ITEMS else []
        return f"[{', '.join(listed + more)}]"
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return repr(value)


def _tensor_text(tensor: Any) -> str:
    """Type and shape; strides where they are not the obvious ones."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    strides = "" if tensor.is_contiguous() else f" with strides {list(tensor.stride())}"
    return f"{dtype}{list(tensor.shape)}{strides}"
