"""Predicted time of a Config on a GPU, from facts and the device's rates, before compiling.

A multiprocessor works through its programs; each is limited by the units it keeps busy or by what
it waits for, all together by memory. Constants are of an H200; others have their own rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import log2, prod
from typing import Any

from typing_extensions import override

from tilesmith.backends.triton.heuristics.long_rows import WorkOfJoinedRows
from tilesmith.backends.triton.heuristics.shared_rows import is_counted
from tilesmith.backends.triton.model.costs import (
    Numbering,
    ProductModel,
    memory_bytes,
    sector_waste,
)
from tilesmith.backends.triton.model.launch import PLAIN_LOOP, Launch, launch_of
from tilesmith.backends.triton.model.resources import ResourceModel
from tilesmith.schedule.config import is_persistent
from tilesmith.schedule.model.estimates import (
    SPILL_FROM,
    Device,
    Prediction,
    RegisterPressure,
    ResourceUse,
    blend,
)
from tilesmith.schedule.model.program_work import (
    Access,
    Combination,
    GridWork,
    Phase,
    WorkModel,
    access_bytes,
)
from tilesmith.schedule.rules import KernelModel, TargetedKernel
from tilesmith.schedule.space.sizes import TileSizes

START_NS, NEXT_TILE_NS = 700.0, 200.0
"""Of a program; of the next tile of a persistent one."""
SHUFFLE_NS, BARRIER_NS = 12.0, 45.0
PRODUCT_LATENCY_NS = 60.0
EXCHANGE_NS = 2600.0
"""Until all programs of a panel have come: their parts to the shared cache, a count, and back."""
GRID_BARRIER_NS = 3000.0
"""Until all programs of a launch have come, the clearing of their counter included."""
CLEARING_NS, COUNTING_NS = 1000.0, 800.0
"""Of memory that a launch clears first; until the last of several programs knows that it is it."""
DESCRIPTOR_LATENCY_NS = 150.0
UNHIDDEN = 0.35
"""Of the shorter of two kinds of work in one program that could overlap."""
OPS_PER_ACCESS = 3.0
"""Instructions for each piece that a thread moves: address, mask, the access."""
OPS_PER_ELEMENT = 1.3
MIN_REGISTERS = 32
ALONE = 1.5
"""How much longer the last program takes than one among others: nothing hides what it waits for."""
WARPS_FOR_ISSUE = 8.0
"""That keep all units of a multiprocessor busy with arithmetic."""


@dataclass(frozen=True)
class _LaunchCase:
    """One Config as the model sees it."""

    launch: Launch
    use: ResourceUse
    values: Mapping[str, Any]
    occupancy: int

    @property
    def sizes(self) -> TileSizes:
        return self.launch.sizes

    @property
    def threads_per_program(self) -> int:
        return self.launch.num_warps * 32  # warps of 32

    @property
    def spill_factor(self) -> float:
        """How much slower a program is whose tiles do not fit its registers."""
        if self.use.pressure is not RegisterPressure.SPILLS:
            return 1.0
        excess = self.use.expected_registers / self.use.limits.registers - SPILL_FROM
        # A few words cost little; whole tiles in memory cost more than everything else.
        return 1.0 + excess + 20.0 * excess * excess


@dataclass
class _Busy:
    """What one program keeps busy, and how long it takes alone, in nanoseconds."""

    work: float = 0.0
    path: float = 0.0
    end: float = 0.0
    """What the very last program does while no other has anything to do."""


class GpuModel(KernelModel):
    """What Configs of one function need of one GPU, and how long they take."""

    def __init__(self, kernel: TargetedKernel, device: Device) -> None:
        super().__init__(kernel, device)
        self._entries = kernel.entries
        self._resources = ResourceModel(kernel)

    @cached_property
    def _work(self) -> WorkModel:
        return WorkOfJoinedRows(self.kernel, self._resources.pipeline)

    @cached_property
    def _products(self) -> ProductModel:
        return ProductModel(self.kernel.target, self.device, self._resources.pipeline)

    @override
    def resources(self, values: Mapping[str, Any]) -> ResourceUse:
        return self._resources.estimate(launch_of(self.kernel, values))

    @override
    def predict(self, values: Mapping[str, Any]) -> Prediction:
        launch = launch_of(self.kernel, values)
        return self._predict(values, launch, self._resources.estimate(launch))

    @override
    def predict_fitting(self, values: Mapping[str, Any]) -> Prediction | None:
        launch = launch_of(self.kernel, values)
        use = self._resources.estimate(launch)
        return self._predict(values, launch, use) if use.fits else None

    def _predict(self, values: Mapping[str, Any], launch: Launch, use: ResourceUse) -> Prediction:
        """The time of one launch; grids of one kernel follow one another."""
        occupancy = resident_programs(self.device, launch, use)
        case = _LaunchCase(launch, use, values, occupancy)
        parts = [self._grid(work, case) for work in self._work.grids]
        # What a launch takes besides what its programs do.
        waits = GRID_BARRIER_NS * self._work.num_barriers + CLEARING_NS * self._work.num_cleared
        waits += COUNTING_NS * is_counted(self.kernel)
        launch_ms = (self.device.launch_ns + waits) / 1e6
        if not parts:
            return Prediction(launch_ms, 0.0, 0.0, 0.0, limiter="the launch")
        longest = max(parts, key=lambda part: part.total_ms)
        total = sum(part.total_ms for part in parts) + launch_ms
        return Prediction(
            total,
            sum(part.compute_ms for part in parts),
            sum(part.memory_ms for part in parts),
            sum(part.latency_ms for part in parts),
            longest.waves,
            longest.occupancy,
            longest.limiter if longest.total_ms > launch_ms else "the launch",
        )

    def _grid(self, work: GridWork, case: _LaunchCase) -> Prediction:
        device = self.device
        tiles = prod(self._work.programs(work, case.sizes))
        loops = is_persistent(case.values.get("pid_type", "flat"))
        multiplier = case.values.get("num_sm_multiplier") or 1
        occupancy = min(case.occupancy, multiplier) if loops else case.occupancy
        per_sm = -(-tiles // device.num_sms)
        occupancy = max(1, min(occupancy, per_sm))
        busy = self._program(work, case, occupancy)
        start = NEXT_TILE_NS if loops else START_NS
        compute = per_sm * busy.work
        exchanges = EXCHANGE_NS * self._work.num_exchanges
        latency = -(-per_sm // occupancy) * (busy.path + start + exchanges)
        running = min(tiles, device.num_sms * occupancy)
        numbering = Numbering.of(self._entries, case.values, work.grid)
        moved = memory_bytes(
            self._work, work, case.sizes, numbering, running, float(device.l2_bytes)
        )
        memory = moved / device.dram_rate
        total = blend((max(compute, latency), memory)) + ALONE * busy.end
        return Prediction(
            total / 1e6, compute / 1e6, memory / 1e6, latency / 1e6,
            tiles / running, occupancy, _limiter(compute, memory, latency),
        )  # fmt: skip

    def _program(self, work: GridWork, case: _LaunchCase, occupancy: int) -> _Busy:
        total = _Busy()
        for phase in work.phases:
            busy = self._phase(phase, case, occupancy)
            trips = self._work.trips(phase.path, case.sizes)
            total.work += trips * busy.work
            total.path += trips * busy.path
            share = self._work.share(phase.path, case.sizes)
            total.end += trips * busy.path * (1.0 / share - 1.0)
        total.work *= case.spill_factor
        total.path *= case.spill_factor
        total.end *= case.spill_factor
        return total

    def _phase(self, phase: Phase, case: _LaunchCase, occupancy: int) -> _Busy:
        """One time through the body of a loop."""
        resident = occupancy * case.launch.num_warps
        products = sum(
            self._products.time_ns(product, case.launch, resident) for product in phase.products
        )
        vector, fill = self._vector_ns(phase, case), self._fill_ns(phase, case)
        arrival, ahead = self._arrival(phase, case)
        # What arrives ahead of its use takes no time from products.
        served = max(products, fill) + (0.0 if ahead else UNHIDDEN * min(products, fill))
        work = max(served, vector) + UNHIDDEN * min(served, vector)
        waits = sum(self._combination_ns(item, case) for item in phase.combinations)
        waits += 0.0 if ahead else PRODUCT_LATENCY_NS * len(phase.products)
        # Groups of four warps wait each for themselves; fewer leave parts of the units idle.
        alone = work + vector * max(0.0, WARPS_FOR_ISSUE / case.launch.num_warps - 1.0)
        alone += waits / max(1.0, case.launch.num_warps / 4)
        if ahead:
            return _Busy(work, blend((alone, arrival / ahead), 3.0))
        return _Busy(work, alone + arrival)

    def _fill_ns(self, phase: Phase, case: _LaunchCase) -> float:
        """Operands and rows from the shared cache, results on their way to it."""
        rate = self.device.l2_rate / self.device.num_sms
        moved = [
            access_bytes(self._work, access, case.sizes)
            * sector_waste(self._work, access, case.sizes)
            for access in phase.accesses
        ]
        return sum(moved) / rate

    def _vector_ns(self, phase: Phase, case: _LaunchCase) -> float:
        """Arithmetic on tiles, and the instructions of accesses."""
        device = self.device
        lanes = OPS_PER_ELEMENT * sum(n * self._numel(shape, case) for shape, n in phase.lanes)
        lanes += sum(self._numel(item.shape, case) for item in phase.combinations)
        lanes += sum(self._access_ops(access, case) for access in phase.accesses)
        special = sum(n * self._numel(shape, case) for shape, n in phase.specials)
        plain_ns = lanes * device.num_sms / device.vector_rate
        special_ns = special * device.num_sms / device.special_rate
        return max(plain_ns, special_ns) + UNHIDDEN * min(plain_ns, special_ns)

    def _numel(self, shape: tuple[Any, ...], case: _LaunchCase) -> int:
        return case.sizes.numel(shape) * self._work.chunks(shape, case.sizes)

    def _access_ops(self, access: Access, case: _LaunchCase) -> float:
        fact = access.fact
        if fact.slot in case.launch.descriptors and fact.kind != "atomic":
            return 0.0
        elements = case.sizes.numel(fact.shape)
        each = max(1, elements // case.threads_per_program)
        width = min(fact.vector_width, each)
        total = elements * self._work.chunks(fact.shape, case.sizes)
        return OPS_PER_ACCESS * total * self._work.passes(fact.shape, case.sizes) / width

    def _combination_ns(self, item: Combination, case: _LaunchCase) -> float:
        """Lanes exchange what they have, then warps do through shared memory."""
        length = case.sizes.size(item.axis)
        rows = max(1, case.sizes.numel(item.shape) // length)
        lanes = min(length, max(4, case.threads_per_program // rows))
        across = lanes > 32
        once = SHUFFLE_NS * log2(min(lanes, 32) or 1) + BARRIER_NS * 2 * across
        return once * (self._work.chunks((item.axis,), case.sizes) if across else 1)

    def _arrival(self, phase: Phase, case: _LaunchCase) -> tuple[float, int]:
        """How long loads take to arrive, and how many steps ahead they are started."""
        loads = [a for a in phase.accesses if a.is_load and not a.fact.is_scalar]
        if not loads:
            return 0.0, 0
        latency = self.device.dram_latency_ns
        if all(access.fact.reuse > 8 for access in loads):
            latency = self.device.l2_latency_ns
        if any(access.fact.slot in case.launch.descriptors for access in loads):
            latency += DESCRIPTOR_LATENCY_NS
        rolled = max(self._work.chunks(a.fact.shape, case.sizes) for a in loads)
        passes = max(self._work.passes(a.fact.shape, case.sizes) for a in loads)
        return latency * rolled * (passes if rolled > 1 else 1), self._ahead(phase, case)

    def _ahead(self, phase: Phase, case: _LaunchCase) -> int:
        if not phase.path or phase.path[-1].is_ordered:
            return 0
        use = case.launch.loops.get(phase.path[-1].slot, PLAIN_LOOP)
        operands = [access for access in phase.accesses if access.is_operand]
        are_described = all(a.fact.slot in case.launch.descriptors for a in operands)
        if case.launch.is_fused and not are_described:
            # In one loop with its tiles' beginnings and ends, only the copy engine runs ahead.
            return 0
        stages = use.num_stages or (case.launch.num_stages if operands else 1)
        # A product that goes on still reads the stage before its own.
        is_asynchronous = self._products.pipeline.is_asynchronous
        held = any(is_asynchronous(p, case.launch) for p in phase.products)
        return max(0, stages - 1 - held)


def resident_programs(device: Device, launch: Launch, use: ResourceUse) -> int:
    """Programs that fit one multiprocessor at the same time, at least 1."""
    registers = max(MIN_REGISTERS, min(use.expected_registers, use.limits.registers or 255))
    registers = min(-(-registers // 8) * 8, launch.maxnreg or 256)
    per_program = registers * launch.num_warps * device.warp_size
    limits = [
        device.registers_per_sm // per_program,
        device.max_warps // launch.num_warps,
        device.max_programs,
    ]
    if use.shared_bytes:
        # The system takes a little of each.
        limits.append(device.shared_per_sm // (use.shared_bytes + 1024))
    return max(1, min(limits))


def _limiter(compute: float, memory: float, latency: float) -> str:
    longest = max(compute, memory, latency)
    if longest == memory:
        return "memory bandwidth"
    return "busy multiprocessors" if longest == compute else "waiting for loads and reductions"
