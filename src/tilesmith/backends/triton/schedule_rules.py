"""What the Triton backend decides about schedules: sizes, keys, resources, times, heuristics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from typing_extensions import override

from tilesmith.backends.triton.heuristics.find import (
    find_candidates,
    find_heuristic,
    find_variants,
)
from tilesmith.backends.triton.model.devices import device_of
from tilesmith.backends.triton.model.time_model import GpuModel
from tilesmith.backends.triton.space import conditions
from tilesmith.backends.triton.space.checks import (
    check_combinations,
    check_launch,
    exceeds_launch,
    exceeds_registers,
)
from tilesmith.backends.triton.space.fitting import lighten
from tilesmith.backends.triton.space.slots import list_slots, scalar_slots
from tilesmith.schedule.facts.collect import Facts
from tilesmith.schedule.model.device import Device
from tilesmith.schedule.model.estimates import ResourceUse
from tilesmith.schedule.rules import ScheduleRules, Seed, TargetedKernel, Values
from tilesmith.schedule.space.sizes import MAX_SEARCHED_BLOCK, SizeRules, power_of_2_floor
from tilesmith.schedule.space.slot_table import KernelSlots
from tilesmith.schedule.space.slots import Entries
from tilesmith.targets import Target

MAX_TILE_ELEMENTS = 1 << 20
"""The most elements that Triton allows in one tile."""
PROGRAMS_PER_SM = 64
"""More than these for each multiprocessor are far more than it can keep busy."""


def _plain_block(num_blocks: int, slab: int) -> int:
    if num_blocks <= 2 and slab <= 128:
        return 32
    if num_blocks >= 3 and slab > 1:
        return power_of_2_floor((32768 / slab) ** (1 / num_blocks))
    return 16 if slab <= 256 else 1


class TritonRules(ScheduleRules):
    """Sides of tiles are powers of two; those of products are 16 or more."""

    backend = "triton"
    option_keys = ("waves_per_eu", "matrix_instr_nonkdim", "xcd_remap")
    has_row_forms = True

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.sizes = SizeRules(
            most_elements=MAX_TILE_ELEMENTS,
            is_padded=True,
            least_dot_side=16,
            largest_block=MAX_SEARCHED_BLOCK,
            least_searched_dot_side=64,
            most_programs=PROGRAMS_PER_SM * target.num_sms,
            chunks=tuple(1 << e for e in range(6, 15)),
            plain_block=_plain_block,
        )

    @override
    def slots(self, kernel: TargetedKernel) -> KernelSlots:
        return KernelSlots(list_slots(kernel), scalar_slots(kernel))

    @override
    def is_active(
        self, entries: Entries, values: Mapping[str, Any], key: str, index: int | None
    ) -> bool:
        return conditions.is_active(entries, values, key, index)

    @override
    def reset_inactive(self, entries: Entries, values: Values) -> Values:
        return conditions.reset_inactive(entries, values)

    @override
    def check(self, values: Mapping[str, Any]) -> None:
        check_combinations(values, self.target)

    @override
    def check_launch(self, kernel: TargetedKernel, values: Mapping[str, Any]) -> None:
        check_launch(kernel, values)

    @override
    def relax(self, kernel: TargetedKernel, values: Values) -> Values:
        if exceeds_registers(values, self.target):
            del values["maxnreg"]
        if exceeds_launch(kernel, values):
            # Programs can be numbered along one axis wherever they can be along three.
            values["pid_type"] = "flat"
        return values

    @override
    def lighten(
        self, kernel: TargetedKernel, values: Values, use: ResourceUse
    ) -> Iterable[Values | None]:
        return lighten(kernel, values, use)

    @override
    def device(self) -> Device:
        return device_of(self.target)

    @override
    def model(self, kernel: TargetedKernel) -> GpuModel:
        return GpuModel(kernel, self.device())

    @override
    def seeds(self, kernel: TargetedKernel) -> tuple[str, Sequence[Seed]]:
        return find_heuristic(kernel)

    @override
    def candidates(self, kernel: TargetedKernel, first: Seed | None) -> Iterable[Seed]:
        return find_candidates(kernel, first)

    @override
    def variants(self, kernel: TargetedKernel, seed: Seed) -> Iterable[Seed]:
        return find_variants(kernel, seed)

    @override
    def may_be_first_form(self, name: str, facts: Facts) -> bool:
        """An exchange may be a default where it was seen to run and to gain.

        That is on NVIDIA devices, for products of 16-bit types, and of fp32 without matrix units.
        """
        if name != "exchange":
            return True
        products = facts.matmuls
        is_known = all(f.itemsize == (2 if f.uses_tensor_cores else 4) for f in products)
        return self.target.kind == "cuda" and is_known
