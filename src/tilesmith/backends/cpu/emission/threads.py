"""Emits the distribution of programs to threads: ranges of equal length, or a shared counter."""

from __future__ import annotations

from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.registers import INDEX, POINTER, LType, Register, index, parameters
from tilesmith.schedule.schedule import CpuOptions

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
