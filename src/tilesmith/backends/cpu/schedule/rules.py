"""What the CPU backend decides about schedules: sizes, keys, heuristics, predicted times.

A prediction is of cores times vectors, caches, and what a program costs. Products go through packed
panels; everything else runs row by row in one pass over its tile, with what is kept between passes
in a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

from typing_extensions import override

from tilesmith.backends.cpu.op_costs import LAST_CACHE_BYTES
from tilesmith.backends.cpu.schedule import heuristics, matmul
from tilesmith.backends.cpu.schedule.groups import MOST_GROUPS_PER_CORE
from tilesmith.backends.cpu.schedule.heuristics import CpuSeed, complete_blocks, longest
from tilesmith.ir.ops.control_flow import Grid, Loop, While
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.types import TensorType
from tilesmith.schedule.facts.dataflow import classify_index
from tilesmith.schedule.facts.fact_set import Facts
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.facts.work import rate_class
from tilesmith.schedule.model import program_work
from tilesmith.schedule.model.estimates import Device, Prediction, blend, matrix_rates
from tilesmith.schedule.model.program_work import GridWork, WorkModel, access_bytes
from tilesmith.schedule.rules import KernelModel, Seed, TargetedKernel, first_answer
from tilesmith.schedule.space import fragments
from tilesmith.schedule.space.fragments import is_power_of_two
from tilesmith.schedule.space.sizes import KernelSlots, SizeRules, TileSizes, common_lists
from tilesmith.schedule.space.slots import Slot
from tilesmith.schedule.spread import SpreadForms
from tilesmith.targets import Target

_GHZ = {"avx512": 2.8, "avx2": 3.0, "sse": 3.0, "neon": 2.8}
_LANES = {"avx512": 16, "avx2": 8, "sse": 4, "neon": 4}
_CORE_DRAM_RATE, _CORE_L2_RATE = 11.0, 45.0
"""Of one core of a server, as all of them together get it; an estimate."""
PROGRAM_NS, NEST_NS, WAKE_NS = 150.0, 40.0, 6000.0
"""A program, one of its loop nests, and waking the other threads."""
ROW_NS = 6.0
"""Entering and leaving the innermost loop."""
PACK_RATE = 5.0
"""Bytes of an operand that a core packs for each nanosecond."""
KERNEL_ROWS = 12
"""Of the register block of products; it is two vectors wide."""
KERNEL_SHARE = 0.85
"""Of a core's peak, reached by the register block alone."""
LAST_CACHE_GAIN = 3.0
"""How much faster than memory the last cache is, for tensors that fit it."""


def device_of(target: Target) -> Device:
    """A core does two fused multiply-adds of a vector for each clock."""
    ghz, cores = _GHZ.get(target.arch, 2.5), target.num_sms
    lanes = _LANES.get(target.arch, target.vector_lanes)
    flops = cores * lanes * 4 * ghz / 1e3
    # 16 x 32 x 16 multiply-adds in 16 clocks, where there are tile registers.
    pairs = 2 * flops if target.has_pair_products else flops
    f16 = cores * 1024 * ghz / 1e3 if target.has_matrix_tiles else pairs
    int8 = 4 * flops if target.has_byte_products else flops
    return Device(
        target.arch or "cpu", cores, 1, ghz, 0, 0, 0, 1, 1,
        dram_rate=_CORE_DRAM_RATE * cores, l2_rate=_CORE_L2_RATE * cores, l2_bytes=target.l2_bytes,
        matrix_rates=matrix_rates(flops / 2, flops, flops, f16, flops, int8),
        vector_rate=cores * lanes * 2 * ghz, special_rate=cores * lanes * ghz / 12,
        launch_ns=3000.0, dram_latency_ns=90.0, l2_latency_ns=10.0,
    )  # fmt: skip


class CpuModel(KernelModel):
    """Predicts the Configs of one function on one CPU."""

    @property
    def target(self) -> Target:
        """The CPU, with its caches and vectors."""
        return self.kernel.target

    @cached_property
    def work(self) -> WorkModel:
        """What one program does."""
        outline, facts = self.kernel.outline, self.kernel.facts
        return WorkModel(outline, facts, program_work.Products(outline, facts.accesses))

    @override
    def predict(self, values: Mapping[str, Any]) -> Prediction:
        sizes = self.kernel.sizes(values)
        threads = values.get("cpu_threads") or self.target.num_sms
        is_dynamic = values.get("cpu_schedule") == "dynamic"
        parts = [self._grid(work, sizes, threads, is_dynamic) for work in self.work.grids]
        start = self.device.launch_ns / 1e6
        compute = sum(part.compute_ms for part in parts)
        memory = sum(part.memory_ms for part in parts)
        limiter = "memory bandwidth" if memory > compute else "arithmetic of the busiest core"
        return Prediction(
            sum(part.total_ms for part in parts) + start,
            compute,
            memory,
            sum(part.latency_ms for part in parts),
            max((part.waves for part in parts), default=1.0),
            1.0,
            limiter,
        )

    def _grid(self, work: GridWork, sizes: TileSizes, threads: int, is_dynamic: bool) -> Prediction:
        programs = prod(self.work.programs(work, sizes))
        used = max(1, min(threads, programs))
        share = -(-programs // used)
        trips = self.work.trips
        busy = sum(trips(phase.path, sizes) * self._phase(phase, sizes) for phase in work.phases)
        overhead = share * PROGRAM_NS + (WAKE_NS if used > 1 else 0.0)
        # Taking programs from a counter evens out what is left over.
        even = programs / used
        rounds = 0.5 * (share + max(1.0, even)) if is_dynamic else float(share)
        compute = rounds * busy
        memory = self._memory_ns(work, sizes, used)
        total = blend((compute, memory), 4.0) + overhead
        return Prediction(total / 1e6, compute / 1e6, memory / 1e6, overhead / 1e6, programs / used)

    def _phase(self, phase: program_work.Phase, sizes: TileSizes) -> float:
        core = 1.0 / self.device.num_sms
        products = sum(self._product_ns(product, sizes) for product in phase.products)
        lanes = sum(n * self._numel(shape, sizes) for shape, n in phase.lanes)
        lanes += sum(self._numel(item.shape, sizes) for item in phase.combinations)
        special = sum(n * self._numel(shape, sizes) for shape, n in phase.specials)
        vector = lanes / (self.device.vector_rate * core)
        vector += special / (self.device.special_rate * core)
        moved = [self._access_ns(access, sizes) for access in phase.accesses]
        return products + vector + sum(moved) + self._walks_ns(phase, sizes) + NEST_NS

    def _walks_ns(self, phase: program_work.Phase, sizes: TileSizes) -> float:
        """Every reduction ends a walk over its tile; the next one reads it again from a cache."""
        total = 0.0
        for item in phase.combinations:
            tile = 4.0 * self.work.used_elements(item.shape, sizes)
            rate = self.device.l2_rate
            if tile > self.target.l2_bytes / 2:
                rate = LAST_CACHE_GAIN * self.device.dram_rate
            if tile > self.target.l1_bytes / 2:
                total += tile * self.work.chunks(item.shape, sizes) * self.device.num_sms / rate
        return total

    def _numel(self, shape: tuple[Any, ...], sizes: TileSizes) -> float:
        """Elements, those counted that a last vector of a row does not have."""
        elements = self.work.used_elements(shape, sizes) * self.work.chunks(shape, sizes)
        if not shape:
            return 1.0
        row = self.work.used_elements(shape[-1:], sizes)
        lanes = self.target.vector_lanes
        return elements * (-(-row // lanes) * lanes) / max(1, row)

    def _access_ns(self, access: program_work.Access, sizes: TileSizes) -> float:
        fact = access.fact
        if access.is_operand or fact.is_scalar:
            return 0.0
        moved = access_bytes(self.work, access, sizes)
        rate = self.device.l2_rate / self.device.num_sms
        along = fact.contiguous_dim
        run = 1 if along is None else self.work.used_elements((along,), sizes)
        elements = self.work.used_elements(fact.shape, sizes)
        strided = 1.0 if run > 1 else 8.0
        return strided * moved / rate + ROW_NS * elements / max(1, run)

    def _product_ns(self, product: program_work.Product, sizes: TileSizes) -> float:
        lhs, rhs = product.dot.lhs.tile, product.dot.rhs.tile
        rows, columns = (
            self.work.used_elements((dim,), sizes) for dim in product.dot.result.tile.shape[-2:]
        )
        depth = self.work.used_elements(lhs.shape[-1:], sizes)
        batch = self.work.used_elements(lhs.shape[:1], sizes) if lhs.rank == 3 else 1
        itemsize = max(4, product.dot.result.tile.dtype.itemsize)
        kind = rate_class(lhs.dtype, rhs.dtype, product.dot.precision)
        rate = self.device.matrix_rate(kind) / self.device.num_sms * KERNEL_SHARE
        wide = 2 * self.target.vector_lanes
        padded = -(-rows // KERNEL_ROWS) * KERNEL_ROWS * (-(-columns // wide) * wide)
        multiplying = 2.0 * padded * depth / rate
        shared = self._packed_share(product, sizes)
        packing = (rows * depth + shared * depth * columns) * itemsize / PACK_RATE
        updating = 2 * rows * columns * itemsize / (self.device.l2_rate / self.device.num_sms)
        spilling = max(1.0, (rows * depth + rows * columns) * itemsize / self.target.l2_bytes)
        return batch * (multiplying * min(2.0, spilling) + packing + updating)

    def _packed_share(self, product: program_work.Product, sizes: TileSizes) -> float:
        """The part of packing right operands that is left when programs share packed copies."""
        load = product.rhs.load
        found = [
            (access, work)
            for work in self.work.grids
            for access in work.accesses
            if load is not None and access.is_load and access.fact.slot == load.slot
        ]
        if not found:
            return 1.0
        access, work = found[0]
        asked = access_bytes(self.work, access, sizes) * prod(self.work.programs(work, sizes))
        asked *= self.work.trips(access.loops, sizes)
        return min(1.0, (access.fact.distinct_bytes or asked) / max(1.0, asked))

    def _memory_ns(self, work: GridWork, sizes: TileSizes, used: int) -> float:
        programs = prod(self.work.programs(work, sizes))
        total = 0.0
        for access in work.accesses:
            asked = access_bytes(self.work, access, sizes) * programs
            asked *= self.work.trips(access.loops, sizes)
            total += min(asked, access.fact.distinct_bytes or asked)
        rate = self.device.dram_rate * used / self.device.num_sms
        return total / (rate * (LAST_CACHE_GAIN if total <= LAST_CACHE_BYTES else 1.0))


STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)
MAX_AXES = 3


HEURISTICS: tuple[tuple[str, Callable[[TargetedKernel], Sequence[CpuSeed]]], ...] = (
    ("matmul with reduction epilogue", matmul.reduction_epilogue_seeds),
    ("attention", matmul.attention_seeds),
    ("matmul", matmul.matmul_seeds),
    ("reduction", heuristics.reduction_seeds),
    ("pointwise", heuristics.pointwise_seeds),
    ("anything", lambda kernel: [CpuSeed({})] if kernel.entries.blocks else []),
)
"""The first that answers gives the default; more specific ones come first."""


class CpuBlockSizeFragment(fragments.BlockSizeFragment):
    """A block size on a CPU: also any multiple of 8. Only powers of two are searched."""

    @property
    @override
    def expects(self) -> str:
        return f"a power of two or a multiple of 8{self._range_text()}"

    @override
    def contains(self, value: Any) -> bool:
        is_whole = is_power_of_two(value) or (
            fragments.is_int(value) and value > 0 and value % 8 == 0
        )
        return is_whole and self._is_declared(value)


class CpuRules(SpreadForms):
    """Tiles have their true size; those that are kept lie in memory, one set for each thread."""

    backend = "cpu"
    most_rows_by_pairs = 128
    groups_per_core = MOST_GROUPS_PER_CORE
    sizes = SizeRules(fragment=CpuBlockSizeFragment)
    model_type = CpuModel

    @override
    def slots(self, kernel: TargetedKernel) -> KernelSlots:
        outline, facts = kernel.outline, kernel.facts
        lists = common_lists(outline, facts, kernel.entries, self.sizes, program_order)
        return KernelSlots(lists, scalar_slots(outline, facts))

    @override
    def device(self) -> Device:
        return device_of(self.target)

    @override
    def seeds(self, kernel: TargetedKernel) -> tuple[str, Sequence[Seed]]:
        return first_answer(HEURISTICS, kernel)

    @override
    def candidates(self, kernel: TargetedKernel, first: Seed | None) -> Iterable[Seed]:
        return _candidates(kernel, first if isinstance(first, CpuSeed) else CpuSeed({}))


def _candidates(kernel: TargetedKernel, seed: CpuSeed) -> Iterator[CpuSeed]:
    """Blocks up to four times smaller and larger than the seed's, each for itself."""
    names = list(kernel.entries.blocks)[-MAX_AXES:]
    base = complete_blocks(kernel, seed.blocks)
    sizes = [_around(kernel, name, base[name]) for name in names]
    for blocks in product(*sizes):
        yield replace(seed, blocks={**base, **dict(zip(names, blocks))})


def _around(kernel: TargetedKernel, name: str, size: int) -> list[int]:
    low, high = kernel.minimum(name), longest(kernel, name)
    return list(dict.fromkeys(min(max(low, int(size * step)), high) for step in STEPS))


MAX_THREADS = 1024
STREAMED_BYTES = 64 << 20
"""Outputs from here on do not stay in any cache, so stores may as well bypass them."""


def scalar_slots(outline: FunctionOutline, facts: Facts) -> dict[str, Slot]:
    """One slot for each key."""
    is_uneven = has_uneven_programs(outline)
    is_streamed = largest_streamed_bytes(outline) >= STREAMED_BYTES
    schedules = fragments.EnumFragment(("static", "dynamic"))
    unrolls = fragments.PowerOfTwoFragment(1, 8, 4)
    return {
        "cpu_threads": _slot("cpu_threads", fragments.IntegerFragment(0, MAX_THREADS), 0, False),
        "cpu_unroll": _slot("cpu_unroll", unrolls, 4, bool(facts.reductions)),
        # Smaller outputs are likely to be read from the cache by whatever comes next, which a
        # search does not see.
        "cpu_streaming_stores": _slot(
            "cpu_streaming_stores", fragments.BooleanFragment(), is_streamed, is_streamed
        ),
        "cpu_schedule": _slot(
            "cpu_schedule", schedules, "dynamic" if is_uneven else "static", bool(outline.grids)
        ),
    }


def program_order(grid: Grid, facts: Facts) -> list[int]:
    """Axes from the fastest on: a thread's programs go along memory, or stay with one matrix."""
    sides = {axis.block for fact in facts.matmuls for axis in (fact.m, fact.n)}
    fast = [i for i, block in enumerate(grid.blocks) if block and block in sides]
    slow = [i for i in range(len(grid.blocks)) if i not in fast]
    return fast + slow[::-1]


def _slot(name: str, valid: fragments.Fragment, default: object, is_searched: bool) -> Slot:
    return Slot(name, valid, valid if is_searched else fragments.EnumFragment((default,)), default)


def has_uneven_programs(outline: FunctionOutline) -> bool:
    """Whether the length of some loop depends on loaded data or on where its program stands."""
    if any(isinstance(site.op, While) for site in outline.sites):
        return True
    axes = [(loop, position) for loop in outline.loops for position in range(len(loop.blocks))]
    return any(_is_uneven(outline, *axis) for axis in axes)


def _is_uneven(outline: FunctionOutline, loop: Loop, position: int) -> bool:
    bounds = (loop.begins[position], loop.ends[position])
    if any(map(outline.is_data_dependent, bounds)):
        return True
    # The tile of an outer block has the same length wherever it begins.
    if outline.find_length_bound(loop, position) is not None:
        return False
    indices = {axis.index for grid in outline.grids for axis in outline.axes_of(grid)}
    return any(not indices.isdisjoint(outline.roots(bound)) for bound in bounds)


def largest_streamed_bytes(outline: FunctionOutline) -> int:
    """The size of the largest output of constant shape that is only ever stored, row by row."""
    ops = [site.op for site in outline.sites]
    used = {op.tensor.tensor.alias for op in ops if isinstance(op, (Load, Atomic))}
    stores = [op for op in outline.ops(Store) if op.tensor.tensor.alias not in used]
    plain = [op for op in stores if _is_plain(outline, op)]
    return max((_known_bytes(op.tensor.tensor) for op in plain), default=0)


def _is_plain(outline: FunctionOutline, op: Store) -> bool:
    patterns = [classify_index(outline, index) for index in op.indices]
    if op.mask is not None or op.bases is not None:
        return False
    if any(pattern.kind == "gather" for pattern in patterns):
        return False
    strides = zip(op.tensor.tensor.strides, patterns)
    return any(stride == 1 and pattern.kind != "scalar" for stride, pattern in strides)


def _known_bytes(tensor: TensorType) -> int:
    sizes = [size for size in tensor.shape if isinstance(size, int)]
    return prod(sizes) * tensor.dtype.itemsize if len(sizes) == tensor.rank else 0
