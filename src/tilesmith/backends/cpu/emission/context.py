"""Where in a function code is being emitted, the function's memory, and threads that share it.

A context is immutable, so that an inner place cannot change an outer one. Only the builder is
written to, and it only appends. All memory is taken when the function begins and given back when
it ends, so a thread that runs many programs takes its memory once. Threads run ranges of programs
of equal length, or take a few at a time from a shared counter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tilesmith.backends.cpu.dots.shapes import padded_shape, vector_lanes
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.lanes import Lane, Lanes
from tilesmith.backends.cpu.llvm.registers import (
    INDEX,
    POINTER,
    LType,
    Register,
    index,
    parameters,
)
from tilesmith.backends.cpu.loop_ir.elements import Element, Tensor, Tile, Variable
from tilesmith.backends.cpu.loop_ir.statements import Kernel
from tilesmith.backends.cpu.loop_ir.whole_tiles import PackedTensor
from tilesmith.backends.cpu.math.casts import cast
from tilesmith.backends.cpu.positions.memory import Buffer
from tilesmith.dtypes import F64, I64, DType
from tilesmith.ir.types import Dim, Extent
from tilesmith.schedule.schedule import CpuOptions

_MAX_STACK_BYTES = 256 * 1024
"""Memory of the heap may go back to the system with each call, and come as page faults again."""
_ALIGNMENT = 64
_MOST_VECTORS = 4
_SPARE_ROWS = 31
NULL = Register("null", LType(POINTER))


class Scratch:
    """Gives memory to one function."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._on_stack = 0
        self._on_heap: list[Register] = []

    def take(self, size: int) -> Register:
        """``size`` bytes."""
        size = max(_ALIGNMENT, -(-size // _ALIGNMENT) * _ALIGNMENT)
        return self.find_on_stack(size) or self.take_runtime(index(size))

    def find_on_stack(self, size: int) -> Register | None:
        """That many bytes that need not be given back, while there is room."""
        if self._on_stack + size > _MAX_STACK_BYTES:
            return None
        self._on_stack += size
        return self._builder.alloca("i8", size, _ALIGNMENT)

    def take_runtime(self, size: Register) -> Register:
        """As many bytes as a register says; it must be known when the function begins."""
        builder = self._builder
        with builder.at_entry():
            if size.constant is None:
                raised = builder.binary("add", size, index(2 * _ALIGNMENT - 1))
                size = builder.binary("and", raised, index(-_ALIGNMENT))
            pointer = builder.call("aligned_alloc", LType(POINTER), index(_ALIGNMENT), size)
        self._on_heap.append(pointer)
        return pointer

    def give_back(self) -> None:
        """At the function's end."""
        for pointer in self._on_heap:
            self._builder.call_void("free", pointer)


def pad(builder: Builder, lengths: list[Register], lanes: int, dtype: DType) -> list[Register]:
    """Room for the whole register blocks of a product."""
    rows, columns = lengths[-2:]
    if rows.constant is not None and columns.constant is not None:
        padded = map(index, padded_shape(lanes, dtype, rows.constant, columns.constant))
        return [*lengths[:-2], *padded]
    block = vector_lanes(lanes, dtype) * _MOST_VECTORS
    raised = builder.add(columns, index(block - 1))
    return [*lengths[:-2], builder.add(rows, index(_SPARE_ROWS)), builder.round_down(raised, block)]


@dataclass(frozen=True)
class FunctionContext:
    """What is the same everywhere in one LLVM function: where its memory is, and sizes by name.

    ``indices`` are those of the program, one for each axis of its grid.
    """

    builder: Builder
    kernel: Kernel
    scratch: Scratch
    tensors: Mapping[Tensor, Register]
    sizes: Mapping[str, Register]
    buffers: Mapping[Tile, Buffer] = field(default_factory=dict[Tile, Buffer])
    packed: Mapping[PackedTensor, Register] = field(default_factory=dict[PackedTensor, Register])
    indices: tuple[Variable, ...] = ()
    multiples: Mapping[Variable, int] = field(default_factory=dict[Variable, int])
    """Of indices, what they are multiples of."""


@dataclass(frozen=True)
class Context:
    """A place in a function.

    Attributes:
        lengths: how long the axes of blocks are here, where they may be shorter than the block.
        lanes: how many elements a step computes, and which of them count.
        loops: where the loops of the nest are, those that are open.
        known: elements computed so far. A scope ends where its code no longer dominates what
            follows; what is computed in it is forgotten with it.
        steps: how scalars of a combination are computed, when asked for.
        shared: elements that groups of lanes have in common.
        quarter: where those are computed, once that is known.
    """

    function: FunctionContext
    scalars: Mapping[Variable, Register]
    lengths: Mapping[str, Register] = field(default_factory=dict[str, Register])
    lanes: Lanes = field(default=Lanes(1))
    loops: Mapping[int, Lane] = field(default_factory=dict[int, Lane])
    known: dict[Element, Lane] = field(default_factory=dict[Element, Lane])
    steps: Mapping[Variable, Element] = field(default_factory=dict[Variable, Element])
    shared: frozenset[Element] = frozenset()
    quarter: list[Context] = field(default_factory=list["Context"])

    @property
    def builder(self) -> Builder:
        """Appends instructions."""
        return self.function.builder

    def with_scalars(self, scalars: Mapping[Variable, Register]) -> Context:
        """Where some variables have these values."""
        return replace(self, scalars={**self.scalars, **scalars}) if scalars else self

    def scope(self) -> Context:
        """Code that need not dominate what follows: what it computes is forgotten."""
        return replace(self, known={**self.known}, quarter=[])

    def nest(self, width: int, loops: Mapping[int, Lane] | None = None) -> Context:
        """In a nest of that many lanes, from nothing known."""
        return replace(self, known={}, lanes=Lanes(width), loops=loops or {})

    def at(self, axis: int, lane: Lane, lanes: Lanes | None = None) -> Context:
        """In a step of a loop, which may mask some lanes."""
        return replace(
            self,
            loops={**self.loops, axis: lane},
            lanes=self.lanes if lanes is None else lanes,
            known={**self.known},
            quarter=[],
        )

    def length(self, dim: Dim) -> Register:
        """How many elements an axis has here."""
        total = index(1)
        for factor in dim.factors:
            if isinstance(factor, int):
                part = index(factor)
            else:
                part = self.lengths.get(factor) or self.block_size(factor)
            total = self.builder.multiply(total, part)
        return total

    def block_size(self, name: str) -> Register:
        """How long a whole tile is: a constant of the schedule, or a runtime size."""
        sizes = self.function.kernel.block_sizes
        return index(sizes[name]) if name in sizes else self.function.sizes[name]

    def extent(self, extent: Extent) -> Register:
        """A size or stride of a tensor."""
        return index(extent) if isinstance(extent, int) else self.function.sizes[extent]

    def index_of(self, variable: Variable) -> Register:
        """An integer variable as an index."""
        return self.builder.index_of(self.scalars[variable])


def begin_function(builder: Builder, kernel: Kernel) -> Context:
    """Everything a function starts with: its parameters, by value and by name."""
    tensors: dict[Tensor, Register] = {}
    scalars: dict[Variable, Register] = {}
    sizes: dict[str, Register] = {}
    with builder.at_entry():
        for place, parameter in enumerate(kernel.parameters):
            slot = builder.offset(builder.parameters[0], index(place), INDEX)
            if isinstance(parameter, Tensor):
                tensors[parameter] = builder.load(slot, LType(POINTER))
                continue
            dtype = parameter.dtype
            raw = builder.load(slot, LType("double" if dtype.is_float else INDEX))
            scalars[parameter] = cast(builder, F64 if dtype.is_float else I64, dtype, raw)
            if dtype.is_integer:
                sizes[parameter.label.hint] = builder.index_of(scalars[parameter])
    return Context(FunctionContext(builder, kernel, Scratch(builder), tensors, sizes), scalars)


MIN_PARALLEL_WORK = 32 * 1024
"""Elements below which a parallel region costs more than it saves."""
_TURNS_PER_THREAD = 16
"""Enough for the last ones to end together, few enough to cost nothing."""
RANGE_PARAMETERS = parameters(("arguments", "begin", "end"), ("arguments",))
"""Of functions that run some of the programs."""
_SLOTS = ("arguments", "count", "counter")


def emit_parallel(
    builder: Builder,
    body: str,
    arguments: Register,
    count: Register,
    work: int,
    options: CpuOptions,
) -> None:
    """Run ``body(arguments, begin, end)`` over all programs, by several threads if it pays.

    ``work`` is how many elements each of them computes.
    """
    threads = builder.minimum(builder.parameters[1], count)
    enough = index(max(2, -(-MIN_PARALLEL_WORK // max(1, work))))
    if count.constant is not None and count.constant < (enough.constant or 0):
        builder.call_void(body, arguments, index(0), count)
        return
    is_large = builder.compare("sge", count, enough)
    is_shared = builder.binary("and", is_large, builder.compare("sgt", threads, index(1)))
    worker = f"{body}_worker"
    _emit_worker(builder, worker, body, options)

    def parallel() -> None:
        context = builder.alloca("i64", len(_SLOTS))
        for name, x in zip(_SLOTS, (arguments, count, index(0))):
            builder.store(x, _slot(builder, context, name))
        team = builder.convert("trunc", threads, "i32")
        function = Register(f"@{worker}", LType(POINTER))
        builder.call_void("GOMP_parallel", function, context, team, Register("0", LType("i32")))

    alone = arguments, index(0), count
    builder.if_else(is_shared, parallel, lambda: builder.call_void(body, *alone))


def _slot(builder: Builder, context: Register, name: str) -> Register:
    return builder.offset(context, index(_SLOTS.index(name)), INDEX)


def _emit_worker(outer: Builder, name: str, body: str, options: CpuOptions) -> None:
    builder = Builder(outer.module, name, (("context", LType(POINTER)),))
    context = builder.parameters[0]
    arguments = builder.load(_slot(builder, context, "arguments"), LType(POINTER))
    count = builder.load(_slot(builder, context, "count"), LType(INDEX))
    (_take_turns if options.is_dynamic else _take_range)(builder, body, arguments, count)
    outer.module.add(builder)


def _take_range(builder: Builder, body: str, arguments: Register, count: Register) -> None:
    thread = builder.index_of(builder.call("omp_get_thread_num", LType("i32")))
    threads = builder.index_of(builder.call("omp_get_num_threads", LType("i32")))
    begin = builder.binary("sdiv", builder.multiply(count, thread), threads)
    end = builder.binary("sdiv", builder.multiply(count, builder.add(thread, index(1))), threads)
    builder.call_void(body, arguments, begin, end)


def _take_turns(builder: Builder, body: str, arguments: Register, count: Register) -> None:
    """A few programs after the other from a counter that all threads share."""
    counter = _slot(builder, builder.parameters[0], "counter")
    threads = builder.index_of(builder.call("omp_get_num_threads", LType("i32")))
    turns = builder.multiply(threads, index(_TURNS_PER_THREAD))
    chunk = builder.intrinsic("smax", builder.binary("sdiv", count, turns), index(1))

    def following() -> list[Register]:
        text = f"atomicrmw add {counter}, {chunk} monotonic"
        return [builder.value(LType(INDEX), text)]

    def step(state: tuple[Register, ...]) -> list[Register]:
        end = builder.minimum(builder.add(state[0], chunk), count)
        builder.call_void(body, arguments, state[0], end)
        return following()

    builder.repeat(lambda state: builder.compare("slt", state[0], count), step, following())
