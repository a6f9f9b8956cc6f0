"""What a Config stands for: one of the forms that a kernel has, and the Schedule of a function.

Rows that are reduced can be split over programs: ``structure="exchange"``, ``"row_parts"`` and, for
those of products, ``"two_phases"`` and ``"last_reduces"`` in a Config say so, and it then has the
keys and lengths of that form of the function. Without the key it is about the function as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from hashlib import sha256
from math import inf, prod
from random import Random
from typing import Any

from typing_extensions import override

from tilesmith.exc import InvalidConfigValue
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.schedule.config import KEYS_BY_NAME, STRUCTURE, Config, is_persistent
from tilesmith.schedule.facts.outline import AnyLoop, FunctionOutline
from tilesmith.schedule.model.estimates import Prediction
from tilesmith.schedule.other_forms import Split, other_forms
from tilesmith.schedule.rules import ScheduleRules, Values
from tilesmith.schedule.schedule import (
    AccessOptions,
    CpuOptions,
    GridOptions,
    LoopOptions,
    Schedule,
)
from tilesmith.schedule.space.fragments import Fragment
from tilesmith.schedule.space.sizes import dot_minimums, pad_constants
from tilesmith.schedule.space.slots import Entries, entry_of, is_flattened, is_static
from tilesmith.schedule.spec import ConfigSpec, Given, RankedConfig

MOST_SCRATCH = 4 << 30
"""Bytes that a kernel may take without being asked to."""
OTHER_SHARE = 0.25
"""Of random Configs, those of other forms."""


def _plain(config: Given) -> Config:
    return Config.from_dict({key: config[key] for key in config if key != STRUCTURE})


def _marked(values: Mapping[str, Any], name: str) -> Config:
    return Config.from_dict({**values, STRUCTURE: name})


class MultiFormSpec(ConfigSpec):
    """A ConfigSpec that also knows the Configs of other forms of the function, if it has any."""

    def __init__(
        self,
        function: Function,
        rules: ScheduleRules,
        tunables: Mapping[str, Fragment] | None = None,
        *,
        split: Split,
        allow_warp_specialize: bool = True,
    ) -> None:
        super().__init__(function, rules, tunables, allow_warp_specialize=allow_warp_specialize)
        self._split = split

    @cached_property
    def others(self) -> dict[str, ConfigSpec]:
        """The specifications of the function's other forms, by name."""
        allowed = self.kernel.allow_warp_specialize

        def make(function: Function, rules: ScheduleRules) -> ConfigSpec:
            made = ConfigSpec(function, rules, self.tunables, allow_warp_specialize=allowed)
            if function.before is not None:
                made.model.find_earlier = partial(_predict_default, function.before, rules)
            return made

        return other_forms(self.kernel, self._split, make)

    @override
    def forms(self) -> dict[str, ConfigSpec]:
        return super().forms() | self.others

    @override
    def of(self, config: Given) -> tuple[ConfigSpec, Config]:
        other = self._other(config)
        return (self, self._portable(config)) if other is None else (other, _plain(config))

    def _other(self, config: Given) -> ConfigSpec | None:
        """The specification that a Config is about, if it is another one."""
        name = config.get(STRUCTURE)
        if name is None or not (self.rules.has_row_forms or name in self.others):
            return None
        if name not in self.others:
            choices = ", ".join(f'"{name}"' for name in self.others)
            allowed = f"{choices}, or nothing" if choices else "nothing: the kernel has one form"
            raise InvalidConfigValue(key=STRUCTURE, value=repr(name), allowed=allowed)
        return self.others[name]

    def _portable(self, config: Given) -> Config:
        """A Config of another target's form has more tiles; the first are the kernel's own."""
        plain = _plain(config)
        if config.get(STRUCTURE) is None:
            return plain
        return Config(block_sizes=plain.block_sizes[: len(self.lists["block_sizes"])])

    @override
    def normalize(self, config: Given) -> Config:
        other = self._other(config)
        if other is None:
            return super().normalize(self._portable(config))
        return _marked(other.normalize(_plain(config)), config[STRUCTURE])

    @override
    def settle(self, values: Given) -> Values:
        other = self._other(values)
        if other is None:
            return super().settle(self._portable(values))
        return {**other.settle(_plain(values)), STRUCTURE: values[STRUCTURE]}

    @override
    def fit(self, values: Given, most_elements: float = inf) -> Config:
        other = self._other(values)
        if other is None:
            return super().fit(values, most_elements)
        return _marked(other.fit(_plain(values), most_elements), values[STRUCTURE])

    @override
    def seed_configs(self) -> tuple[Config, ...]:
        others = (
            _marked(config, name)
            for name, other in self.others.items()
            for config in other.seed_configs()
        )
        return (*super().seed_configs(), *others)

    @override
    def ranked_configs(self, count: int = 10) -> tuple[RankedConfig, ...]:
        default = self.default_config()
        lists = [super().ranked_configs(count)]
        for name, other in self.others.items():
            suffix = f", {name.replace('_', ' ')}"
            lists.append(
                tuple(
                    RankedConfig(
                        _marked(item.config, name),
                        other.model.in_all(item.predicted),
                        item.reason + suffix,
                    )
                    for item in other.ranked_configs(count)
                )
            )
        # The first of each form comes early: between forms the model errs most.
        early = [item for ranked in lists for item in ranked[:1]]
        late = [item for ranked in lists for item in ranked[1:]]
        early.sort(key=lambda item: (item.config != default, item.predicted.total_ms))
        late.sort(key=lambda item: item.predicted.total_ms)
        return tuple([*early, *late][:count])

    @override
    def default_config(self) -> Config:
        return self._first

    @cached_property
    def _first(self) -> Config:
        """Rows are split where they fit no registers, or where that promises to be much faster."""
        own = super().default_config()
        splits = [
            _marked(spec.default_config(), name)
            for name, spec in self.others.items()
            if _scratch_bytes(spec) <= MOST_SCRATCH
            and self.rules.may_be_first_form(name, spec.kernel)
        ]
        if not splits:
            return own
        ranks = [self.rules.form_rank(config[STRUCTURE]) for config in splits]
        splits = [config for config, rank in zip(splits, ranks) if rank == min(ranks)]
        split = min(splits, key=lambda config: self.predict(config).total_ms)
        if super().feasibility(own) is not None:
            return split
        gain = super().predict(own).total_ms / self.predict(split).total_ms
        return split if gain >= self.rules.least_gain(split[STRUCTURE]) else own

    @override
    def fallback_configs(self) -> tuple[Config, ...]:
        return tuple(dict.fromkeys([self.default_config(), *super().fallback_configs()]))

    @override
    def random_config(self, rng: Random) -> Config:
        if not self.others or rng.random() >= OTHER_SHARE:
            return super().random_config(rng)
        name = rng.choice(list(self.others))
        return _marked(self.others[name].random_config(rng), name)

    @override
    def fingerprint(self) -> str:
        own = super().fingerprint()
        if not self.others:
            return own
        parts = [own, *(f"{name} {spec.fingerprint()}" for name, spec in self.others.items())]
        return sha256("\n".join(parts).encode()).hexdigest()[:16]


def _predict_default(function: Function, rules: ScheduleRules) -> Prediction:
    """Of a launch that no Config is about."""
    spec = MultiFormSpec(function, rules, split=lambda function, name: None)
    return spec.predict(spec.default_config())


def _scratch_bytes(spec: ConfigSpec) -> int:
    """What a launch allocates besides what host code does."""
    made = [p.value.tensor for p in spec.function.parameters if p.source.startswith("torch.empty(")]
    return sum(tensor.dtype.itemsize * prod(map(int, tensor.shape)) for tensor in made)


def resolve_schedule(
    lowered: Function, spec: ConfigSpec, values: Config, symbols: Mapping[str, int]
) -> Schedule:
    """How to run a function under a normalised Config of ``spec``.

    ``lowered`` is the specification's function with reductions rolled and tiles flattened as the
    Config says; ``symbols`` has the sizes of all its blocks.
    """
    entries = spec.entries
    minimums = dot_minimums(spec.facts.matmuls, spec.rules.sizes)
    has_program_loop = is_persistent(values.pid_type) and bool(entries.ranges)
    return Schedule(
        target=spec.target,
        symbols=symbols,
        padded=pad_constants(FunctionOutline(lowered), minimums, spec.rules.sizes),
        grids={grid.slot: _grid_options(spec, values, grid) for grid in spec.outline.grids},
        loops={loop.slot: _one_loop(spec, values, loop) for loop in spec.outline.loops},
        persistent_loop=_range_options(values, 0) if has_program_loop else LoopOptions(),
        accesses={op.slot: _access_options(entries, values, op) for op in entries.accesses},
        atomics={
            op.slot: AccessOptions(entry_of(values, "atomic_indexing", entries.atomics, op))
            for op in entries.atomics
        },
        pid_type=values.pid_type,
        num_warps=values.num_warps,
        num_stages=values.num_stages,
        num_sm_multiplier=values.num_sm_multiplier,
        maxnreg=values.maxnreg,
        store_parts=values.epilogue_subtile or 1,
        form=spec.rules.form,
        backend_options={key: values[key] for key in spec.rules.option_keys if values.get(key)},
        cpu=CpuOptions(
            threads=values.cpu_threads,
            unroll=values.cpu_unroll,
            streaming_stores=values.cpu_streaming_stores,
            is_dynamic=values.cpu_schedule == "dynamic",
        ),
    )


def _order(spec: ConfigSpec, values: Config, loop: AnyLoop) -> tuple[int, ...]:
    if is_flattened(spec.entries, values, loop):
        return (0,)
    order = entry_of(values, "loop_orders", spec.entries.ordered, loop)
    return tuple(order or range(len(loop.blocks)))


def _grid_options(spec: ConfigSpec, values: Config, grid: Grid) -> GridOptions:
    grouping = entry_of(values, "l2_groupings", spec.entries.grouped, grid)
    return GridOptions(_order(spec, values, grid), grouping)


def _range_options(values: Config, position: int) -> LoopOptions:
    def entry(key: str) -> Any:
        items = values.get(key) or []
        return items[position] if position < len(items) else KEYS_BY_NAME[key].neutral

    return LoopOptions(
        unroll_factor=entry("range_unroll_factors"),
        num_stages=entry("range_num_stages"),
        multi_buffer=entry("range_multi_buffers"),
        flatten=entry("range_flattens"),
        warp_specialize=entry("range_warp_specializes"),
    )


def _one_loop(spec: ConfigSpec, values: Config, loop: Loop) -> LoopOptions:
    order = _order(spec, values, loop)
    if is_static(spec.entries, values, loop):
        return LoopOptions(order=order, is_static=True)
    # A loop of several axes takes the options of its innermost one, where the work is.
    position = spec.entries.ranges_of(loop)[order[-1]]
    options = replace(_range_options(values, position), order=order)
    return replace(options, num_stages=1) if loop.is_ordered else options


def _access_options(entries: Entries, values: Config, op: Load | Store) -> AccessOptions:
    kind, owners = ("load", entries.loads) if isinstance(op, Load) else ("store", entries.stores)
    return AccessOptions(
        entry_of(values, "indexing", entries.accesses, op),
        entry_of(values, "load_eviction_policies", entries.evictable, op),
        entry_of(values, f"{kind}_cache_modifiers", owners, op),
    )


class PlainSpec(MultiFormSpec):
    """One that names no good Configs: neither heuristics nor the device model have a say."""

    @override
    def seed_configs(self) -> tuple[Config, ...]:
        return (self.base_config(),)

    @override
    def ranked_configs(self, count: int = 10) -> tuple[RankedConfig, ...]:
        base = self.base_config()
        return (RankedConfig(base, self.predict(base), "heuristics are switched off"),)[:count]

    @override
    def default_config(self) -> Config:
        return self.base_config()
