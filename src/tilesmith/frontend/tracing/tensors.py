"""``TensorRef``: a host tensor as device code sees it: metadata, and memory behind subscripts."""

from __future__ import annotations

from textwrap import fill
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.frontend.tracing.emission import integer
from tilesmith.frontend.tracing.packed_tile import held_bytes
from tilesmith.frontend.tracing.tracer import Tracer, current_tracer
from tilesmith.frontend.tracing.values import Scalar, TorchOperand, dispatch
from tilesmith.interpreter.torch_dtypes import ELEMENT_TYPES, has_element_type
from tilesmith.ir.function import Size
from tilesmith.ir.types import Dim, Extent, TensorType, Value

_VIEWS = frozenset(
    f".{name}"
    for name in ("view", "reshape", "flatten", "transpose", "permute", "expand", "unsqueeze")
)


class TensorRef(TorchOperand):
    """A kernel input or output. Only subscripts (``x[tile]``, ``x[tile] = v``) touch its memory."""

    user_name = "a host tensor"

    def __init__(self, tensor: torch.Tensor, value: Value, source: str) -> None:
        self.host_tensor = tensor
        self.value = value
        self.source = source

    @property
    def type(self) -> TensorType:
        """The IR type: element type, sizes, strides."""
        return self.value.tensor

    @property
    def dtype(self) -> torch.dtype:
        """The element type, as torch has it."""
        return self.host_tensor.dtype

    @property
    def device(self) -> torch.device:
        """Where the tensor lives."""
        return self.host_tensor.device

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.type.rank

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes: ints under static shapes, symbolic scalars otherwise."""
        return tuple(size_scalar(self, axis) for axis in range(self.ndim))

    def size(self, dim: int | None = None) -> Any:
        """All sizes, or one of them."""
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        """All strides in elements, or one of them."""
        strides = tuple(extent_scalar(extent) for extent in self.type.strides)
        return strides if dim is None else strides[dim]

    def dim(self) -> int:
        """The number of dimensions, as a method."""
        return self.ndim

    def numel(self) -> Any:
        """The number of elements."""
        total: Any = 1
        for size in self.shape:
            is_constant = isinstance(total, int) and isinstance(size, int)
            total = total * size if is_constant else integer("mul", total, size)
        return total

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.host_tensor.element_size()

    def __getitem__(self, index: Any) -> Any:
        return dispatch("load", (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        dispatch("store", (self, index, value), {})

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        raise errors.HostTensorAsCondition(name=self.source)

    def __iter__(self) -> Any:
        raise errors.InvalidDeviceForLoop(iterable=f"the host tensor `{self.source}`")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith("new_"):
            return lambda *args, **kwargs: dispatch(name, (self, *args), kwargs)
        if name == "item":
            raise errors.NotAllowedOnDevice(statement="`.item()`")
        raise self._direct_usage(f".{name}")

    def _direct_usage(self, use: str) -> errors.BaseError:
        texts: dict[str, Any] = {"name": self.source, "use": use}
        if use in _VIEWS:
            view = f"`v = {self.source}{use}(...)`"
            texts["fix"] = f"take the view on the host, before the loop: {view}"
        return errors.HostTensorDirectUsage(**texts)

    def _operator(self, *_: Any) -> Any:
        raise self._direct_usage("an operator")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _operator
    __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = __neg__ = __pow__ = _operator
    __lt__ = __le__ = __gt__ = __ge__ = _operator

    def __repr__(self) -> str:
        return f"<host tensor {self.source} {self.type}>"


def reference(tracer: Tracer, tensor: torch.Tensor, source: str) -> TensorRef:
    """The TensorRef of what the launcher finds at ``source``.

    One tensor passed under two names is two parameters: the next call may pass two tensors.
    """
    held, passed = held_bytes(tracer, tensor, source)
    if not has_element_type(held.dtype):
        raise _unsupported_elements(tensor.dtype, source)
    tensor_type = tracer.tensor_type(held, passed)
    tracer.guards.tensor(held, tensor_type, passed)
    value = tracer.parameter(readable_name(source), passed, tensor_type)
    ref = TensorRef(tensor, value, source)
    tracer.tensor_refs.setdefault(id(tensor), ref)
    return ref


def _unsupported_elements(dtype: torch.dtype, source: str) -> errors.BaseError:
    fix = f"convert `{source}` on the host, or view its bits as integers"
    if dtype.is_complex:
        views = f"torch.view_as_real({source}), {source}.real, {source}.imag"
        fix = f"take a view of real numbers on the host: {views}"
    elif str(dtype).startswith("torch.q"):
        fix = f"take {source}.int_repr() or {source}.dequantize() on the host"
    names = (str(known).removeprefix("torch.") for known in ELEMENT_TYPES)
    expected = fill(f"elements of {', '.join(names)}", 90)
    kind = f"a tensor of {dtype}"
    return errors.UnsupportedArgumentType(argument=source, kind=kind, expected=expected, fix=fix)


def reference_of_unknown(tensor: torch.Tensor) -> TensorRef:
    """A tensor that device code reached by itself.

    A closure cell known by identity, or a global.
    """
    tracer = current_tracer("a tensor")
    if id(tensor) in tracer.closure_sources:
        # Not its namesake among the arguments: the next call may pass two tensors.
        return reference(tracer, tensor, tracer.closure_sources[id(tensor)][1])
    known = tracer.tensor_refs.get(id(tensor))
    if known is not None:
        return known
    tracer.constants.append(tensor)
    return reference(tracer, tensor, f"__constants__[{len(tracer.constants) - 1}]")


def readable_name(source: str) -> str:
    """An identifier for a launch expression: ``xs[1]`` gives ``xs_1``."""
    if source.isidentifier():
        return source
    text = source.removesuffix(".cell_contents").replace("__closure__", "captured")
    words = "".join(char if char.isalnum() else " " for char in text).split()
    return "_".join(words)


def extent_scalar(extent: Extent) -> Any:
    """A size or stride as device code sees it."""
    if isinstance(extent, int):
        return extent
    tracer = current_tracer("a size")
    parameter = next(p for p in tracer.parameters.values() if p.value.name == extent)
    return Scalar(parameter.value)


def size_scalar(ref: TensorRef, axis: int) -> Any:
    """One size of a tensor, usable as a number, as a loop bound and as a dimension."""
    extent = ref.type.shape[axis]
    if isinstance(extent, int):
        return extent
    result = extent_scalar(extent)
    result.as_dim = size_dim(extent, ref.host_tensor.shape[axis])
    return result


def size_dim(extent: str, hint: int) -> Dim:
    """The dimension of a runtime size; equal sizes share a symbol, checked at each launch."""
    tracer = current_tracer("a size")
    shares = tracer.host.constant_sizes.shares_symbol
    is_shared = shares(tracer.source_of(extent), hint)
    for size in tracer.sizes.values():
        is_same = size.name == extent
        if is_same or (
            size.hint == hint and is_shared and shares(tracer.source_of(size.name), hint)
        ):
            if size.name != extent:
                tracer.equal_sizes.append((tracer.source_of(size.name), tracer.source_of(extent)))
            return Dim.of(size.name)
    tracer.sizes[extent] = Size(extent, hint)
    return Dim.of(extent)
