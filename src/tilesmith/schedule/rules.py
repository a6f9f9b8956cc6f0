"""What a backend decides about schedules: the seam between what is common and what is its own.

``ScheduleRules`` has an answer to every question that a ConfigSpec asks, right for a target of
which nothing is known. A backend overrides those that it knows better, and lists the keys that only
its Configs have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

from tilesmith.diagnostics.location import SourceLocation
from tilesmith.exc import InvalidConfig
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.types import Dim, Shape, Value, next_power_of_2
from tilesmith.schedule.config import KEYS_BY_NAME, RANGE_KEYS
from tilesmith.schedule.facts.fact_set import Facts
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.model.estimates import Device, Limits, Prediction, ResourceUse
from tilesmith.schedule.space.sizes import (
    KernelSlots,
    SizeResolver,
    SizeRules,
    TileSizes,
    block_minimum,
    common_lists,
    declared_maximum,
    distinct_tiles,
    power_of_2_floor,
)
from tilesmith.schedule.space.slots import Entries, is_flattened
from tilesmith.targets import Target

LEAST_GAIN = 1.35
"""Of a form with other sums: the model errs most between forms."""
Values = dict[str, Any]
Ignored = tuple[str, SourceLocation, str]
AnySeed = TypeVar("AnySeed")


class Seed(Protocol):
    """The part of a Config that a heuristic has an opinion on."""

    def values(self, kernel: TargetedKernel) -> Values:
        """The keys of a Config."""
        ...


class KernelModel:
    """What programs of one kernel need, and how long a launch takes, before compiling."""

    def __init__(self, kernel: TargetedKernel, device: Device) -> None:
        self.kernel = kernel
        self.device = device
        self.find_earlier: Callable[[], Prediction] | None = None
        """The time of what is launched before, if the kernel has two launches."""

    @cached_property
    def _earlier(self) -> Prediction | None:
        return self.find_earlier and self.find_earlier()

    def in_all(self, own: Prediction) -> Prediction:
        """The time of all launches, of which one takes so long."""
        return own if self._earlier is None else own.after(self._earlier)

    def resources(self, values: Mapping[str, Any]) -> ResourceUse:
        """An estimate of what normalised values need of the device."""
        elements, largest = self.kernel.largest_tile(self.kernel.sizes(values))
        return ResourceUse(elements, largest, Limits(self.kernel.rules.sizes.most_elements))

    def predict(self, values: Mapping[str, Any]) -> Prediction:
        """The time of one launch with normalised values; here what no Config can beat."""
        least = self.roofline_ms()
        return Prediction(least, 0.0, least, 0.0, limiter="unknown")

    def predict_fitting(self, values: Mapping[str, Any]) -> Prediction | None:
        """The same, or None for values that do not fit the device."""
        return self.predict(values) if self.resources(values).fits else None

    def roofline_ms(self) -> float:
        """What no Config can beat: all products at the best rate, every tensor moved once."""
        return least_ms(self.kernel.facts, self.device)

    def check_tiles(self, values: Mapping[str, Any]) -> None:
        """Refuse tiles that are too large."""
        use, kernel = self.resources(values), self.kernel
        tile = use.largest_tile
        if use.has_legal_tiles or tile is None:
            return
        shape = tile.tile.shape
        symbols = {symbol for dim in shape for symbol in dim.symbols}
        blocks, rolled = enumerate(kernel.entries.blocks), enumerate(kernel.entries.rolled)
        remedies = [f"block_sizes[{i}] ({name})" for i, name in blocks if name in symbols]
        remedies += [f"reduction_loops[{i}]" for i, dim in rolled if dim in shape]
        raise InvalidConfig(
            problem=f"tile {tile.name} {tile.type} would hold {use.tile_elements} elements",
            loc=tile.loc,
            expected=f"at most {use.limits.tile_elements} elements in one tile",
            fix="lower " + " or ".join(remedies) if remedies else "split this axis into tiles",
        )

    def find_problem(self, values: Mapping[str, Any]) -> str | None:
        """Why normalised values do not fit the device, in the user's names; None when they do."""
        use, device = self.resources(values), self.kernel.target.label
        if use.fits:
            return None

        def text(value: Value | None) -> str:
            return "a tile" if value is None else self._tile_text(values, value)

        if not use.has_legal_tiles:
            has = f"{text(use.largest_tile)} has {use.tile_elements} elements"
            return f"{has}; at most {use.limits.tile_elements} may be"
        if not use.fits_shared:
            tiles = ", ".join(dict.fromkeys(map(text, use.shared_tiles)))
            shared = f"needs {use.shared_bytes} bytes of shared memory for {tiles}"
            stages = values.get("num_stages", 1)
            return f"{shared} in {stages} stages; {device} has {use.limits.shared_bytes}"
        if use.straight.problem:
            return use.straight.problem
        tile, warps = text(use.largest_resident), values["num_warps"]
        needed = f"needs {use.registers} registers for each thread with {tile} on {warps} warps"
        return f"{needed}; {device} has {use.limits.registers}"

    def _tile_text(self, values: Mapping[str, Any], value: Value) -> str:
        op, sizes = self.kernel.outline.definitions.get(value), self.kernel.sizes(values)
        name = op.tensor.name if isinstance(op, Load) else value.name
        return f"{name or 'a tile'}[{', '.join(str(sizes.size(dim)) for dim in value.tile.shape)}]"


def first_answer(
    heuristics: Iterable[tuple[str, Callable[[TargetedKernel], Sequence[AnySeed]]]],
    kernel: TargetedKernel,
) -> tuple[str, Sequence[AnySeed]]:
    """The name of the first heuristic that answers, and its seeds; "" and nothing if none does."""
    answers = ((name, heuristic(kernel)) for name, heuristic in heuristics)
    return next((answer for answer in answers if answer[1]), ("", ()))


def least_ms(facts: Facts, device: Device) -> float:
    """The time of the products alone, or of moving every tensor once: whichever is longer.

    0 where neither is known before the launch.
    """
    flops = facts.flops or {}
    products = sum(count / device.matrix_rate(kind) for kind, count in flops.items())
    return max(products, (facts.bytes or 0) / device.dram_rate) / 1e6


class ScheduleRules:
    """The rules of one backend for one target."""

    backend = ""
    """The backend's name, for messages."""
    sizes = SizeRules()
    option_keys: tuple[str, ...] = ()
    """Keys whose values ``emit`` finds in ``Schedule.backend_options``, unless they are 0."""
    model_type = KernelModel
    most_rows_by_pairs = 0  # up to which a product by joined pairs is faster as two, always
    has_row_forms = False
    """Whether rows that are reduced may be split over programs (``structure=``)."""
    form = ""
    """The ``structure`` that these rules are of, where it is another way to run the function."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def slots(self, kernel: TargetedKernel) -> KernelSlots:
        """What each position of each key takes; a key without slots here has no effect."""
        return KernelSlots(common_lists(kernel.outline, kernel.facts, kernel.entries, self.sizes))

    def is_active(
        self, entries: Entries, values: Mapping[str, Any], key: str, index: int | None
    ) -> bool:
        """Whether an entry changes the code, given the other values."""
        if key != "loop_orders" or index is None:
            return True
        return not is_flattened(entries, values, entries.ordered[index])

    def reset_inactive(self, entries: Entries, values: Values) -> Values:
        """The same values with entries of no effect at their neutral value."""
        result = dict(values)
        # What others depend on comes first.
        for key in ("flatten_loops", "loop_orders", "l2_groupings", "indexing", *RANGE_KEYS):
            if key in values:
                result[key] = [
                    item
                    if self.is_active(entries, result, key, index)
                    else list(range(len(entries.ordered[index].blocks)))
                    if key == "loop_orders"
                    else KEYS_BY_NAME[key].neutral
                    for index, item in enumerate(values[key])
                ]
        return result

    def ignored(self, entries: Entries, values: Mapping[str, Any]) -> Iterable[Ignored]:
        """Entries whose loop cannot have them: each as it was given, the loop, and why."""
        return ()

    def check(self, values: Mapping[str, Any]) -> None:
        """Raise ``InvalidConfig`` if values that are right by themselves do not go together."""

    def check_launch(self, kernel: TargetedKernel, values: Mapping[str, Any]) -> None:
        """Raise ``InvalidConfig`` if the device takes no such launch."""

    def relax(self, kernel: TargetedKernel, values: Values) -> Values:
        """The nearest values that the checks take."""
        return values

    def lighten(
        self, kernel: TargetedKernel, values: Values, use: ResourceUse
    ) -> Iterable[Values | None]:
        """Values that need less, where those given fit no device; None: nothing of that kind."""
        return ()

    def device(self) -> Device:
        """What the target can do; nothing is known of this one."""
        return Device.unknown(self.target)

    def model(self, kernel: TargetedKernel) -> KernelModel:
        """What programs need and how long they take."""
        return self.model_type(kernel, self.device())

    def seeds(self, kernel: TargetedKernel) -> tuple[str, Sequence[Seed]]:
        """The name of the heuristic that answers, and its seeds; "" and nothing when none does."""
        return "", ()

    def candidates(self, kernel: TargetedKernel, first: Seed | None) -> Iterable[Seed]:
        """More seeds worth a prediction, around the first of a heuristic."""
        return ()

    def variants(self, kernel: TargetedKernel, seed: Seed) -> Iterable[Seed]:
        """A promising seed with other choices that the prediction may tell apart."""
        return ()

    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
        """Whether a form of the kernel may be its default."""
        return True

    def form_rank(self, name: str) -> int:
        """Of forms that may be the default those of the least rank are, the fastest of them."""
        return 0

    def row_forms(self, kernel: TargetedKernel) -> Sequence[str]:
        """Names of forms in which programs share the rows of a kernel."""
        return ()

    def rules_of_form(self, name: str, kernel: TargetedKernel) -> ScheduleRules | None:
        """Rules of a form in which programs share rows, whose kernel that is; None: it has none."""
        return self

    def missing_ways(self, kernel: TargetedKernel) -> Mapping[str, str]:
        """Why a kernel cannot run in other ways that kernels like it can, by their names."""
        return {}

    def least_gain(self, name: str) -> float:
        """How many times faster a form must promise to be than the kernel as it is."""
        return LEAST_GAIN

    def other_ways(self, kernel: TargetedKernel) -> Mapping[str, ScheduleRules]:
        """Rules of other ways to run the same function, by the ``structure`` that names them."""
        return {}


@dataclass(frozen=True)
class TargetedKernel:
    """A function on a target: what heuristics, models and slots are asked about."""

    outline: FunctionOutline
    facts: Facts
    entries: Entries
    rules: ScheduleRules
    allow_warp_specialize: bool = True

    @property
    def target(self) -> Target:
        """What it runs on."""
        return self.rules.target

    @cached_property
    def resolver(self) -> SizeResolver:
        """From block sizes to sizes of tiles."""
        return SizeResolver(self.outline, self.facts, self.entries, self.rules.sizes)

    def sizes(self, values: Mapping[str, Any]) -> TileSizes:
        """Physical sizes of all dimensions under settled values."""
        return self.resolver.sizes(values)

    @cached_property
    def _tiles(self) -> tuple[Value, ...]:
        return distinct_tiles(self.outline)

    def largest_tile(self, sizes: TileSizes) -> tuple[int, Value | None]:
        """Elements of the largest tile, and the tile; one element where there is none."""
        largest = max(self._tiles, key=lambda v: sizes.numel(v.tile.shape), default=None)
        return sizes.numel(largest.tile.shape) if largest else 1, largest

    @cached_property
    def _minimums(self) -> dict[str, int]:
        names = {block.name for block in self.outline.function.blocks}
        outline, facts, rules = self.outline, self.facts, self.rules.sizes
        return {name: block_minimum(outline, facts, rules, name) for name in names}

    def minimum(self, block: str) -> int:
        """The least size of a block."""
        return self._minimums[block]

    def extent(self, block: str, unknown: int = 4096) -> int:
        """How far the block's axis ranges; ``unknown`` where that is not known."""
        extent = self.outline.extent(Dim.of(block))
        return unknown if extent is None else extent

    def whole(self, block: str) -> int:
        """The block size that covers the whole axis."""
        whole = max(self.minimum(block), next_power_of_2(self.extent(block)))
        return min(whole, self.maximum(block))

    def maximum(self, block: str) -> int:
        """The most that the source allows a block; beyond all sizes where it says nothing."""
        declared = declared_maximum(self.outline, block)
        return 1 << 62 if declared is None else declared

    @property
    def loop_blocks(self) -> tuple[str, ...]:
        """Tunable blocks that only sequential loops step by."""
        return tuple(b for b in self.entries.blocks if b not in self.outline.grid_blocks)

    def programs(self, besides: tuple[str | None, ...]) -> int:
        """How many programs the grid has for each tile of the given blocks."""
        function, total = self.outline.function, 1
        axes = [axis for grid in self.outline.grids[:1] for axis in self.outline.axes_of(grid)]
        for axis in axes:
            if not axis.block or axis.block not in besides:
                fixed = function.block(axis.block).fixed if function.is_block(axis.block) else 1
                total *= -(-(axis.extent or 1) // (fixed or 1))
        return max(1, total)

    def shrink(self, values: Values, use: ResourceUse, most_elements: float) -> Values | None:
        """Values that need less of what there is too little of; None where there are none."""
        is_tile_too_large = not use.has_legal_tiles or use.tile_elements > most_elements
        if not is_tile_too_large or use.largest_tile is None:
            attempts = self.rules.lighten(self, values, use)
            return next((smaller for smaller in attempts if smaller is not None), None)
        shape = use.largest_tile.tile.shape
        return self.halve_block(values, shape) or self.roll(values, shape)

    def halve_block(self, values: Values, dims: Shape) -> Values | None:
        """Halve the largest block along one of the dimensions."""
        symbols = {symbol for dim in dims for symbol in dim.symbols}
        sizes = list(values["block_sizes"])
        candidates = [
            i
            for i, name in enumerate(self.entries.blocks)
            if name in symbols and sizes[i] > self.minimum(name)
        ]
        if not candidates:
            return None
        largest = max(candidates, key=lambda i: (sizes[i], i))
        # Blocks need not be powers of two everywhere, but half of one need not be a legal block.
        sizes[largest] = power_of_2_floor(sizes[largest] - 1)
        return {**values, "block_sizes": sizes}

    def roll(self, values: Values, dims: Shape) -> Values | None:
        """Walk a row in chunks, or in smaller ones."""
        chunks = list(values.get("reduction_loops") or [])
        for i, dim in enumerate(self.entries.rolled):
            size = chunks[i] or next_power_of_2(self.outline.extent(dim) or 1)
            if dim in dims and size > 16:
                chunks[i] = size // 2
                return {**values, "reduction_loops": chunks}
        return None
