"""From a parameter of the IR to what the launcher must know of it."""

from __future__ import annotations

from tilesmith.artifacts import LaunchParameter
from tilesmith.dtypes import F16, F32, F64
from tilesmith.ir.function import Parameter
from tilesmith.ir.types import TensorType

_PARTS_OF_COMPLEX = (F16, F32, F64)


def launch_parameter(parameter: Parameter, name: str = "") -> LaunchParameter:
    """The launcher's view of a parameter; ``name`` is what emitted code calls it."""
    kind = parameter.value.type
    is_tensor = isinstance(kind, TensorType)
    return LaunchParameter(
        name or parameter.value.name,
        parameter.source,
        is_tensor,
        kind.dtype.name,
        may_be_negated=is_tensor and _may_be_negated(kind),
    )


def _may_be_negated(tensor: TensorType) -> bool:
    """Whether it may be the imaginary part of a conjugate, whose sign torch flips lazily.

    Parts of complex numbers lie two apart, so no stride of theirs is odd, but for axes of one
    element. (Runtime sizes are neither 0 nor 1: these are part of the specialization. Only
    ``as_strided`` could make such a view; asking every tensor at every launch costs too much.)
    """
    has_odd_stride = any(
        isinstance(stride, int) and stride % 2 and not (isinstance(size, int) and size <= 1)
        for size, stride in zip(tensor.shape, tensor.strides)
    )
    return tensor.dtype in _PARTS_OF_COMPLEX and not has_odd_stride
