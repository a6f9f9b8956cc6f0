"""Proxies that device code handles: tiles of elements and symbolic scalars.

They implement ``__torch_function__``, so torch functions, methods and operators on them all arrive
in one table (``torch_functions.py``). A proxy is immutable; in-place spellings rebind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from typing_extensions import override

import tilesmith.exc as errors
from tilesmith.diagnostics.location import is_subscript
from tilesmith.dtypes import I32
from tilesmith.frontend.advice.subscripts import subscripted
from tilesmith.frontend.tracing.tracer import OpenRegion, current_tracer, locate
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.ops.indexing import BlockSize
from tilesmith.ir.types import Dim, Shape, TileType, Value, scalar

Operator = Callable[..., Any]
ATTRIBUTES_THAT_ARE_CALLS = frozenset({"T", "mT", "real"})


def dispatch(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply the table's function of that name to device values."""
    return current_tracer(name).dispatch(name, args, kwargs)


def _forward(name: str) -> Operator:
    return lambda *operands: dispatch(name, operands, {})


def _backward(name: str) -> Operator:
    return lambda self, other: dispatch(name, (other, self), {})


def _rounding(name: str) -> Operator:
    """What Python's rounding functions ask of a number."""

    def rounded(self: TileValue, *digits: Any) -> Any:
        if digits and digits[0] is not None:
            return dispatch(name, (self,), {"decimals": digits[0]})
        is_whole = not self.tile.dtype.is_float
        return self if is_whole else dispatch(name, (self,), {}).to(torch.int32)

    return rounded


class TorchOperand:
    """What torch functions accept in device code: their calls go to the table of rules."""

    __slots__ = ()

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Torch functions with such an object among their arguments arrive here."""
        return dispatch(func.__name__, args, kwargs or {})


class TileValue(TorchOperand):
    """A device tensor: one SSA value with torch's interface."""

    user_name = "a device value"
    __slots__ = ("_region", "_value", "is_reduced")

    def __init__(self, value: Value, *, is_reduced: bool = False) -> None:
        tracer = current_tracer("a device value")
        self._value = value
        self._region: OpenRegion | None = tracer.regions[-1] if tracer.regions else None
        self.is_reduced = is_reduced
        """Whether it lost an axis to a reduction: such values do not align by axis identity."""

    @property
    def value(self) -> Value:
        """The SSA value; an error if the loop or branch that made it has ended."""
        if self._region is not None and not self._region.is_open:
            raise errors.CrossRootDeviceValue(
                name=self._value.name or "a value", place=str(self._region.loc)
            )
        return self._value

    @property
    def tile(self) -> TileType:
        """The IR type: element type and dimensions."""
        return self._value.tile

    @property
    def is_weak(self) -> bool:
        """Whether it promotes like a Python number."""
        return False

    @property
    def dtype(self) -> torch.dtype:
        """The torch element type."""
        return to_torch(self.tile.dtype)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes: ints for constants, symbolic scalars for block axes."""
        return tuple(size_of_dim(dim) for dim in self.tile.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.tile.rank

    def size(self, dim: int | None = None) -> Any:
        """All sizes, or one of them."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """The number of dimensions, as a method."""
        return self.tile.rank

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ATTRIBUTES_THAT_ARE_CALLS:
            return dispatch(name, (self,), {})
        return lambda *args, **kwargs: dispatch(name, (self, *args), kwargs)

    def __bool__(self) -> bool:
        if self.tile.rank:
            raise errors.MultiElementCondition(shape=str(self.tile))
        raise errors.DataDependentCondition()

    def __index__(self) -> int:
        loc = locate()
        if is_subscript(loc):
            raise errors.InvalidSequenceSubscription(
                sequence=subscripted(loc.text) or "the sequence", index=self.user_name
            )
        raise errors.ShapeSpecializingCall(value=self._value.name or str(self.tile))

    __int__ = __index__

    def __float__(self) -> float:
        raise errors.ShapeSpecializingCall(
            value=self._value.name or str(self.tile),
            fix="use torch's functions on it, such as torch.exp for math.exp",
        )

    def __iter__(self) -> Any:
        raise errors.InvalidDeviceForLoop(iterable=f"a device tensor {self.tile}")

    def __format__(self, form: str) -> str:
        # A string is made once, at compile time; nobody wants the name of a value in it.
        raise errors.InvalidArgumentKind(
            function="a string", problem="a device value has no text", fix='print("value", value)'
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        raise errors.DeviceTensorSubscriptAssignmentNotAllowed(name=self._value.name or "the value")

    __add__, __radd__ = _forward("add"), _backward("add")
    __sub__, __rsub__ = _forward("sub"), _backward("sub")
    __mul__, __rmul__ = _forward("mul"), _backward("mul")
    __truediv__, __rtruediv__ = _forward("true_divide"), _backward("true_divide")
    __floordiv__, __rfloordiv__ = _forward("floor_divide"), _backward("floor_divide")
    __mod__, __rmod__ = _forward("remainder"), _backward("remainder")
    __pow__, __rpow__ = _forward("pow"), _backward("pow")
    __matmul__, __rmatmul__ = _forward("matmul"), _backward("matmul")
    __and__, __rand__ = _forward("bitwise_and"), _backward("bitwise_and")
    __or__, __ror__ = _forward("bitwise_or"), _backward("bitwise_or")
    __xor__, __rxor__ = _forward("bitwise_xor"), _backward("bitwise_xor")
    __lshift__, __rlshift__ = _forward("bitwise_left_shift"), _backward("bitwise_left_shift")
    __rshift__, __rrshift__ = _forward("bitwise_right_shift"), _backward("bitwise_right_shift")
    __eq__: Operator = _forward("eq")
    __ne__: Operator = _forward("ne")
    __lt__, __le__, __gt__, __ge__ = _forward("lt"), _forward("le"), _forward("gt"), _forward("ge")
    __neg__, __pos__, __invert__ = _forward("neg"), _forward("clone"), _forward("bitwise_not")
    __abs__, __getitem__ = _forward("abs"), _forward("subscript")
    __floor__, __ceil__ = _rounding("floor"), _rounding("ceil")
    __trunc__, __round__ = _rounding("trunc"), _rounding("round")

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __hash__(self) -> int:
        # Equality is elementwise: identity is all that is left for sets and dicts.
        return id(self)

    def __repr__(self) -> str:
        return f"<device value {self._value.name} {self.tile}>"


class Scalar(TileValue):
    """A symbolic number.

    A tile's begin, a block size, a runtime argument. It promotes like a Python number.

    ``as_dim`` is set when it may serve as a size: then ``make`` builds its SSA value only if it is
    computed with.
    """

    user_name = "a runtime number"
    __slots__ = ("_is_made", "_make", "as_dim", "double", "sum_of")

    def __init__(
        self,
        value: Value | Callable[[], Value],
        *,
        dim: Dim | None = None,
        tile_type: TileType | None = None,
    ) -> None:
        made = value if isinstance(value, Value) else None
        super().__init__(made or Value(tile_type or scalar(I32)))
        self._make = None if isinstance(value, Value) else value
        self._is_made = made is not None
        self.as_dim = dim
        self.sum_of: tuple[Any, Any] | None = None
        """The two summands when this is a sum: lets ``s : s + t.block_size`` be recognised as a
        range."""
        self.double: Callable[[], TileValue] | None = None
        """The same runtime float in full precision, for fp64 operands."""

    @property
    @override
    def value(self) -> Value:
        region = self._region
        is_gone = not self._is_made or (region is not None and not region.is_open)
        if self._make is not None and is_gone:
            # It is the same number everywhere, so a loop that used it first does not own it.
            self._value = self._make()
            self._is_made = True
            regions = current_tracer("a device value").regions
            self._region = regions[-1] if regions else None
        return super().value

    @property
    @override
    def is_weak(self) -> bool:
        return True


class ValuesAndIndices(NamedTuple):
    """What ``torch.max``, ``torch.sort`` and others along a dimension give."""

    values: TileValue
    indices: TileValue


def size_of_dim(dim: Dim) -> Any:
    """A dimension as a Python value: an int, or a symbolic scalar usable as a size."""
    constant = dim.constant
    if constant is not None:
        return constant
    tracer = current_tracer("a size")
    symbol = dim.symbol

    # Made on first use: a size that only names a dimension needs no op.
    def make() -> Value:
        if symbol is None:
            raise errors.ShapeSpecializingCall(value=str(dim))
        size = tracer.sizes.get(symbol)
        if size is not None:
            parameter = next(p for p in tracer.parameters.values() if p.value.name == symbol)
            return parameter.value
        return tracer.create(BlockSize, scalar(I32), block=symbol)

    return Scalar(make, dim=dim)


def shape_text(shape: Shape) -> str:
    """A shape for messages."""
    return "[" + ", ".join(map(str, shape)) + "]"
