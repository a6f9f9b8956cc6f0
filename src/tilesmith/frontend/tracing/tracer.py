"""The function under construction while device code runs with proxies: parameters, blocks, regions.

The two context variables at the end are the only ambient state: which kernel's host or device code
runs in this thread right now.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.catalogue import BaseWarning
from tilesmith.diagnostics.kernel_warnings import WarningLog
from tilesmith.diagnostics.location import SourceLocation, capture_location
from tilesmith.dtypes import I32, I64, DType
from tilesmith.frontend.tracing.guards import GuardList
from tilesmith.frontend.tracing.host_session import HostSession, place_of
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.function import Block, Builder, Function, Parameter, Size
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.types import Dim, Extent, TensorType, Type, Value, scalar

_TORCH_DIRECTORY = os.path.dirname(torch.__file__)
INT32_LIMIT = 2**31 - 1
WIDE_LIMIT = INT32_LIMIT - (1 << 20)
"""Positions beyond this are counted in 64 bits, so that ``begin + block`` cannot overflow."""
Op = TypeVar("Op", bound=Operation)


def locate() -> SourceLocation:
    """Where the user's code is right now."""
    return capture_location(_TORCH_DIRECTORY)


@dataclass(frozen=True)
class TraceOptions:
    """Settings that change the IR."""

    static_shapes: bool = True
    dot_precision: str = "ieee"
    index_dtype: DType | None = None
    is_interpreted: bool = False
    """Whether the reference interpreter will run the kernel: it can stop in a debugger."""


@dataclass
class OpenRegion:
    """A region being filled. Values made in it must not be used once it is closed."""

    kind: str
    loc: SourceLocation
    is_open: bool = True
    bound_blocks: tuple[str, ...] = ()
    tiles: dict[str, Any] = field(default_factory=dict[str, Any])
    """The tile of each bound block."""


@dataclass(frozen=True)
class Mark:
    """A point of a trace that it can return to."""

    depth: int
    num_blocks: int
    random_calls: int


@dataclass
class Tracer:
    """Collects the IR of one kernel."""

    name: str
    host: HostSession
    options: TraceOptions
    dispatch: Callable[[str, tuple[Any, ...], dict[str, Any]], Any]
    """Applies the torch-function table; handed in, since the table's rules use the tracer."""
    builder: Builder = field(default_factory=lambda: Builder(locate))
    parameters: dict[str, Parameter] = field(default_factory=dict[str, Parameter])
    blocks: list[Block] = field(default_factory=list[Block])
    sizes: dict[str, Size] = field(default_factory=dict[str, Size])
    regions: list[OpenRegion] = field(default_factory=list[OpenRegion])
    tensor_refs: dict[int, Any] = field(default_factory=dict[int, Any])
    """TensorRef of each known tensor, by identity of the tensor."""
    constants: list[Any] = field(default_factory=list[Any])
    """What launch expressions call ``__constants__``: modules' names, and tensors of no name."""
    closure_sources: dict[int, tuple[torch.Tensor, str]] = field(
        default_factory=dict[int, tuple[torch.Tensor, str]]
    )
    """Tensors in closure cells of callable arguments, by identity, and how the launcher finds
    them."""
    arguments: dict[Value, int] = field(default_factory=dict[Value, int])
    """What integer arguments are in this call, by parameter; plain ints once specialised."""
    observed: dict[str, int] = field(default_factory=dict[str, int])
    """What runtime sizes, strides and integers are in this call, by parameter name."""
    guards: GuardList = field(default_factory=lambda: GuardList(frozenset()))
    """What must still hold when the trace is used again."""
    equal_sizes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Launch expressions of sizes that were equal when traced and share a symbol: checked at
    launch."""
    warnings: WarningLog = field(default_factory=WarningLog)
    """Where remarks on the kernel go."""
    merged_axes: dict[tuple[str, ...], Dim] = field(default_factory=dict[tuple[str, ...], Dim])
    """The last axis that a reshape made of several, by its factors in no order."""
    random_calls: int = 0
    """How many calls of torch's random functions there are so far."""
    is_eager: bool = False
    """Set while torch is only asked a question (a result type), not traced."""
    _alias_groups: dict[int, int] = field(default_factory=dict[int, int])

    @contextmanager
    def eager(self) -> Iterator[None]:
        """Torch calls inside the block run as they are."""
        before, self.is_eager = self.is_eager, True
        try:
            yield
        finally:
            self.is_eager = before

    def warn(self, warning: type[BaseWarning], **details: object) -> None:
        """Remark on the user's line that runs right now; printed once for each place."""
        self.warnings.warn(warning, loc=locate(), **details)

    def create(self, cls: type[Op], result_type: Type, /, **fields: object) -> Value:
        """Append an op with one result."""
        return self.builder.create(cls, result_type, **fields)

    @property
    def region(self) -> OpenRegion:
        """The innermost open region."""
        return self.regions[-1]

    @contextmanager
    def open_region(self, kind: str, blocks: tuple[str, ...] = ()) -> Iterator[OpenRegion]:
        """Ops created inside the block go to a new region.

        ``take_region`` collects it afterwards.
        """
        region = OpenRegion(kind, locate(), bound_blocks=blocks)
        self.regions.append(region)
        self.builder.open_region()
        try:
            yield region
        finally:
            region.is_open = False
            self.regions.pop()

    def take_region(self, args: tuple[Value, ...]) -> Region:
        """The region closed last."""
        return self.builder.close_region(args)

    def mark(self) -> Mark:
        """Where the trace stands, to begin again from here."""
        return Mark(self.builder.depth, len(self.blocks), self.random_calls)

    def return_to(self, mark: Mark) -> None:
        """Forget the regions opened since; ops of regions that were open already stay."""
        self.builder.drop_regions(mark.depth)
        del self.blocks[mark.num_blocks :]
        self.random_calls = mark.random_calls

    def bound_blocks(self) -> set[str]:
        """Blocks bound by the loops that are open now."""
        return {block for region in self.regions for block in region.bound_blocks}

    def find_tile(self, block: str | None) -> Any:
        """The present tile of a block, None outside the loops over it."""
        return next((r.tiles[block] for r in self.regions if block in r.tiles), None)

    def fresh_name(self, hint: str) -> str:
        """A symbol or parameter name not in use yet."""
        taken = {block.name for block in self.blocks} | set(self.sizes)
        taken |= {parameter.value.name for parameter in self.parameters.values()}
        name, counter = hint, 1
        while name in taken:
            name, counter = f"{hint}_{counter}", counter + 1
        return name

    def new_block(self, hint: str, **fields: Any) -> Block:
        """Declare a block symbol."""
        block = Block(self.fresh_name(hint), loc=locate(), **fields)
        self.blocks.append(block)
        return block

    def find_block(self, name: str | None) -> Block | None:
        """The block of that name; None for other symbols."""
        return next((block for block in self.blocks if block.name == name), None)

    def next_slot(self) -> int:
        """The config slot of the next tuned tile axis: registered ones come first."""
        used = {block.slot for block in self.blocks if block.slot is not None}
        return max([*used, len(self.host.registered) - 1], default=-1) + 1

    def source_of(self, name: str) -> str:
        """The launch expression of a parameter."""
        return next(p.source for p in self.parameters.values() if p.value.name == name)

    def parameter(self, name: str, source: str, param_type: Type) -> Value:
        """The parameter read from ``source`` at launch, declared on first use."""
        existing = self.parameters.get(source)
        if existing is None:
            existing = Parameter(Value(param_type, self.fresh_name(name)), source)
            self.parameters[source] = existing
        return existing.value

    def extent_of(self, tensor: torch.Tensor, source: str, kind: str, axis: int) -> Extent:
        """A size or stride: a constant if it is 0 or 1 or shapes are static, else a parameter."""
        value = tensor.shape[axis] if kind == "size" else tensor.stride(axis)
        # 0 and 1 stay constants: what is empty or broadcast depends on them.
        if self.options.static_shapes or value in (0, 1):
            return int(value)
        expression = f"{source}.{kind}({axis})"
        place = place_of(tensor, kind, axis)
        if self.host.constant_sizes.is_constant(expression, value, place):
            self.equal_sizes.append((expression, str(int(value))))
            return int(value)
        name = f"{_identifier(source)}_{kind}_{axis}"
        dtype = self.integer_dtype(value)
        parameter = self.parameter(name, expression, scalar(dtype)).name
        self.observed[parameter] = int(value)
        return parameter

    @property
    def index_dtype(self) -> DType:
        """The type of ``tile.index``, ``tile.begin`` and ``hl.arange``."""
        return self.options.index_dtype or I32

    def integer_dtype(self, value: int) -> DType:
        """The index type that holds ``value``."""
        if self.options.index_dtype is not None:
            return self.options.index_dtype
        return I32 if -INT32_LIMIT <= value <= WIDE_LIMIT else I64

    def tensor_type(self, tensor: torch.Tensor, source: str) -> TensorType:
        """The IR type of a tensor that the launcher reads from ``source``."""
        shape = tuple(self.extent_of(tensor, source, "size", i) for i in range(tensor.dim()))
        strides = tuple(self.extent_of(tensor, source, "stride", i) for i in range(tensor.dim()))
        span = span_of(tensor)
        is_wide = span > INT32_LIMIT
        if self.options.index_dtype == I32:
            if tensor.numel() > INT32_LIMIT:
                raise errors.InputTensorNumelExceedsIndexType(index_dtype="int32", tensor=source)
            if is_wide:
                raise errors.IndexOffsetOutOfRangeForInt32(tensor=source, offset=span)
        return TensorType(from_torch(tensor.dtype), shape, strides, self.alias_of(tensor), is_wide)

    def alias_of(self, tensor: torch.Tensor) -> int:
        """The tensor's group: tensors over one storage share it."""
        with self.eager():
            is_meta = tensor.device.type == "meta"
            address = 0 if is_meta else tensor.untyped_storage().data_ptr()
        # Tensors without memory (on meta, or empty) are a group each.
        key = address or -id(tensor)
        return self._alias_groups.setdefault(key, len(self._alias_groups))

    def finish(self, body: Region) -> Function:
        """The complete function: tensors first among the parameters, then scalars."""
        parameters = sorted(
            self.parameters.values(), key=lambda p: not isinstance(p.value.type, TensorType)
        )
        return Function(
            name=self.name,
            parameters=tuple(parameters),
            blocks=tuple(self.blocks),
            sizes=tuple(self.sizes.values()),
            body=body,
            tunables=tuple(sorted(self.host.tunable_values.items())),
        )


def span_of(tensor: torch.Tensor) -> int:
    """How far the last element lies from the first."""
    return sum((n - 1) * abs(s) for n, s in zip(tensor.shape, tensor.stride()) if n > 0)


def _identifier(source: str) -> str:
    """A readable identifier for a launch expression: ``xs[1]`` gives ``xs_1``."""
    text = "".join(char if char.isalnum() else "_" for char in source)
    return "_".join(part for part in text.split("_") if part)


_host: ContextVar[HostSession | None] = ContextVar("tilesmith_host", default=None)
_tracer: ContextVar[Tracer | None] = ContextVar("tilesmith_tracer", default=None)


@contextmanager
def running_host(session: HostSession) -> Iterator[HostSession]:
    """Host code of a kernel runs inside this block."""
    token = _host.set(session)
    try:
        yield session
    finally:
        _host.reset(token)


@contextmanager
def tracing(tracer: Tracer) -> Iterator[Tracer]:
    """Device code of a kernel is traced inside this block."""
    token = _tracer.set(tracer)
    try:
        yield tracer
    finally:
        _tracer.reset(token)


find_tracer: Callable[[], Tracer | None] = _tracer.get
"""The tracer of the device code running now, if any."""


def find_host_session() -> HostSession | None:
    """The session of the host code running now, if any (device code has none)."""
    return None if _tracer.get() is not None else _host.get()


def current_tracer(function: str) -> Tracer:
    """The active tracer; ``function`` names the language function that needs it."""
    tracer = _tracer.get()
    if tracer is not None:
        return tracer
    if _host.get() is not None:
        raise errors.DeviceAPIOnHost(function=function)
    raise errors.NotInsideKernel(function=function)


def current_host_session(function: str) -> HostSession:
    """The active host session; ``function`` names the language function that needs it."""
    session = find_host_session()
    if session is not None:
        return session
    if _tracer.get() is not None:
        raise errors.HostAPIOnDevice(function=function)
    raise errors.NotInsideKernel(function=function)
