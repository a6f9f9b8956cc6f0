"""Emits the distribution of programs to threads: ranges of equal length, or a shared counter."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.registers import INDEX, POINTER, LType, Register, index
from tilesmith.schedule.schedule import CpuOptions

MIN_PARALLEL_WORK = 32 * 1024
"""Elements below which a parallel region costs more than it saves."""
_TURNS_PER_THREAD = 16
"""Enough for the last ones to end together, few enough to cost nothing."""
RANGE_PARAMETERS = (
    ("arguments", LType(POINTER)),
    ("begin", LType(INDEX)),
    ("end", LType(INDEX)),
)
"""Of functions that run some of the programs."""
_SLOTS = ("arguments", "count", "counter")


@dataclass(frozen=True)
class Programs:
    """What all programs are given, how many there are, and elements computed by each."""

    arguments: Register
    count: Register
    work: int


def emit_parallel(b: Builder, body: str, programs: Programs, options: CpuOptions) -> None:
    """Run ``body(arguments, begin, end)`` over all programs, by several threads if it pays."""
    arguments, count = programs.arguments, programs.count
    threads = b.parameters[1]
    threads = b.minimum(threads, count)
    enough = index(max(2, -(-MIN_PARALLEL_WORK // max(1, programs.work))))
    is_large = b.compare("sge", count, enough)
    is_shared = b.binary("and", is_large, b.compare("sgt", threads, index(1)))
    worker = f"{body}_worker"
    _emit_worker(b, worker, body, options)

    def parallel() -> None:
        context = b.alloca("i64", len(_SLOTS))
        _put(b, context, "arguments", arguments)
        _put(b, context, "count", count)
        _put(b, context, "counter", index(0))
        number = b.convert("trunc", threads, "i32")
        zero = Register("0", LType("i32"))
        function = Register(f"@{worker}", LType(POINTER))
        b.call_void("GOMP_parallel", function, context, number, zero)

    b.if_else(is_shared, parallel, lambda: b.call_void(body, arguments, index(0), count))


def _slot(b: Builder, context: Register, name: str) -> Register:
    return b.offset(context, index(_SLOTS.index(name)), INDEX)


def _put(b: Builder, context: Register, name: str, x: Register) -> None:
    b.store(x, _slot(b, context, name))


def _get(b: Builder, context: Register, name: str, kind: LType) -> Register:
    return b.load(_slot(b, context, name), kind)


def _emit_worker(outer: Builder, name: str, body: str, options: CpuOptions) -> None:
    b = Builder(outer.module, name, (("context", LType(POINTER)),))
    context = b.parameters[0]
    arguments = _get(b, context, "arguments", LType(POINTER))
    count = _get(b, context, "count", LType(INDEX))
    if options.is_dynamic:
        _take_turns(b, body, arguments, count)
    else:
        _take_range(b, body, arguments, count)
    outer.module.add(b)


def _take_range(b: Builder, body: str, arguments: Register, count: Register) -> None:
    thread = b.index_of(b.call("omp_get_thread_num", LType("i32")))
    threads = b.index_of(b.call("omp_get_num_threads", LType("i32")))
    begin = b.binary("sdiv", b.multiply(count, thread), threads)
    end = b.binary("sdiv", b.multiply(count, b.add(thread, index(1))), threads)
    b.call_void(body, arguments, begin, end)


def _take_turns(b: Builder, body: str, arguments: Register, count: Register) -> None:
    """A few programs after the other from a counter that all threads share."""
    counter = _slot(b, b.parameters[0], "counter")
    threads = b.index_of(b.call("omp_get_num_threads", LType("i32")))
    turns = b.multiply(threads, index(_TURNS_PER_THREAD))
    chunk = b.intrinsic("smax", b.binary("sdiv", count, turns), index(1))

    def following() -> list[Register]:
        text = f"atomicrmw add {counter}, {chunk} monotonic"
        return [b.value(LType(INDEX), text)]

    def step(state: tuple[Register, ...]) -> list[Register]:
        end = b.minimum(b.add(state[0], chunk), count)
        b.call_void(body, arguments, state[0], end)
        return following()

    b.repeat(lambda state: b.compare("slt", state[0], count), step, following())
