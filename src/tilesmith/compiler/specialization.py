"""What is compiled for one specialization of a kernel, each part made once and on demand.

A trace serves every config, unless host code looks at the config or at data: then there are more.
A specification belongs to a trace and a target, an artifact also to a config.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

from tilesmith.analysis.effects import tensors_written
from tilesmith.analysis.run_order import SharedUpdate, find_shared_updates
from tilesmith.artifacts import Artifact
from tilesmith.backends.interface import BackendTable
from tilesmith.compiler.checks import check_written_tensors
from tilesmith.compiler.earlier_launches import with_earlier_launch
from tilesmith.compiler.lowering import Lowering, run_stages
from tilesmith.compiler.module_source import HostMemo, with_host_function
from tilesmith.compiler.pipeline import EMIT, SCHEDULED, STANDARD, STRUCTURE, TARGET, TRACE
from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.diagnostics.logs import topic_log
from tilesmith.exc import NondeterministicKernel
from tilesmith.frontend.containers import ArgumentTemplate
from tilesmith.frontend.trace import Trace, TraceRequest, trace_kernel
from tilesmith.ir.function import Block, Function
from tilesmith.ir.types import next_power_of_2
from tilesmith.schedule.config import Config
from tilesmith.schedule.resolution import MultiFormSpec, PlainSpec
from tilesmith.schedule.rules import ScheduleRules
from tilesmith.schedule.space.fragments import Fragment
from tilesmith.schedule.space.sizes import MAX_SEARCHED_BLOCK
from tilesmith.settings import Settings
from tilesmith.targets import Target

LOG = topic_log("trace")
MAX_VARIANTS = 64
"""Traces of one specialization: what host code computes may be another constant at every call."""
MAX_ARTIFACTS = 64
"""Kept of one specialization: a search emits thousands, each some 10 to 100 KB of text."""


@dataclass(frozen=True, eq=False)
class Variant:
    """One trace after the standard passes."""

    trace: Trace
    function: Function

    def fits(self, config: Config) -> bool:
        """Whether host code would see the same block sizes and tunables under this config."""
        session = self.trace.session
        blocks = config.get("block_sizes", [])
        return all(
            session.block_size(slot) == blocks[slot]
            for slot in session.observed_slots
            if slot < len(blocks)
        ) and all(
            config.get(name, session.tunable_fragments[name].default) == value
            for name, value in session.tunable_values.items()
        )


class Specialization:
    """The traces of a kernel for one key of arguments, their specifications and their code."""

    def __init__(self, request: TraceRequest, settings: Settings, backends: BackendTable) -> None:
        self.settings = settings
        self.backends = backends
        # The template stands for the arguments, which must not be kept alive.
        self._request, self.calls = replace(request, arguments=()), request.calls
        self.remember(request.arguments)
        self._volatile: frozenset[str] = frozenset()
        self.default = self._trace(request.arguments, {}, {})
        """The first trace."""
        self.variants = [self.default]
        """All traces, the newest first."""
        self._specs: dict[tuple[Variant, Target], MultiFormSpec] = {}
        self._artifacts: dict[tuple[Variant, Target, Config], Artifact] = {}
        self._host_parts: HostMemo = {}

    def remember(self, arguments: tuple[Any, ...]) -> None:
        """Trace with these arguments, or others like them, from now on."""
        self._template = ArgumentTemplate(arguments, self._request.host_objects)

    def recall_arguments(self) -> tuple[Any, ...]:
        """Arguments that it is for: those it was made for, where they still exist."""
        return self._template.materialise()

    def with_settings(self, **changes: Any) -> Specialization:
        """The same traces, and code of its own, made under other settings."""
        other = copy(self)
        other.settings, other._artifacts = replace(self.settings, **changes), {}
        return other

    def find(self, config: Config) -> Variant:
        """A trace that fits the config."""
        for variant in self.variants:
            if variant.fits(config):
                return variant
        return self.trace_anew(config, self.recall_arguments())

    def trace_anew(
        self,
        config: Config,
        arguments: tuple[Any, ...],
        changed: frozenset[str] = frozenset(),
        *,
        is_whole: bool = False,
    ) -> Variant:
        """A new trace for a config and these arguments.

        ``changed`` says where numbers stand that were taken for constants and are none: from now
        on they are parameters of device code. ``is_whole``: with all effects of host code.
        """
        self._volatile |= changed
        self._request = replace(self._request, is_whole=self._request.is_whole or is_whole)
        blocks = dict(enumerate(config.get("block_sizes", [])))
        fragments = self.default.trace.session.tunable_fragments
        tunables = {name: config[name] for name in fragments if name in config}
        reason = ", ".join(sorted(changed)) or f"host code looks at its block sizes {blocks}"
        LOG.info("%s: traced again: %s", self.default.function.name, reason)
        variant = self._trace(arguments, blocks, tunables)
        self.variants.insert(0, variant)
        if len(self.variants) > MAX_VARIANTS:
            self._forget_oldest()
        return variant

    def _forget_oldest(self) -> None:
        gone = self.variants.pop(-2)  # the last is the first of all, which others ask
        for key in [key for key in [*self._specs] if key[0] is gone]:
            self._specs.pop(key, None)
        for key in [key for key in [*self._artifacts] if key[0] is gone]:
            self._artifacts.pop(key, None)

    def _trace(
        self, arguments: tuple[Any, ...], blocks: Mapping[int, int], tunables: Mapping[str, Any]
    ) -> Variant:
        request = replace(self._request, arguments=arguments, block_sizes=blocks, tunables=tunables)
        # Numbers that change are parameters, unless device code needs them as constants.
        tried = (_try_to_trace(freer) for freer in self._freer_requests(request))
        trace = next((t for t in tried if t is not None), None) or trace_kernel(request)
        check_written_tensors(trace.function, trace.observed)
        state = Lowering(trace.function, self.settings, request.warnings)
        return Variant(trace, run_stages(state, [TRACE, STANDARD]).function)

    def _freer_requests(self, request: TraceRequest) -> Iterator[TraceRequest]:
        if request.kernel.source.computed and not request.options.static_shapes:
            yield replace(request, are_computed_runtime=True, volatile=self._volatile)
        if self._volatile:
            yield replace(request, volatile=self._volatile)

    def spec(self, target: Target, variant: Variant | None = None) -> MultiFormSpec:
        """What a config may say on a target; of the first trace unless another is named."""
        variant = variant or self.default
        key = (variant, target)
        if key not in self._specs:
            tunables = variant.trace.session.tunable_fragments
            self._specs[key] = make_spec(
                variant.function, self.backends.rules(target), tunables, self.settings
            )
        return self._specs[key]

    def default_config(self, target: Target) -> Config:
        """What nobody has chosen; with the kernel's tunables as determinism wants them."""
        config = self.fitting(self.spec(target).default_config(), self.spec(target).normalize)
        if not self.settings.deterministic:
            return config
        tunables = self.default.trace.session.tunable_fragments
        return choose_deterministic(config, tunables, self.find_order_dependence)

    def fitting(self, config: Config, check: Callable[[Config], Config] = lambda c: c) -> Config:
        """The config with the nearest blocks for which sizes that are computed from them fit."""
        for other in _nearest(config, self.default.trace.session.observed_slots):
            with suppress(BaseError):
                self.find(check(other))
                return other
        return config

    def find_order_dependence(self, config: Config) -> SharedUpdate | None:
        """The first update whose outcome depends on the order of programs under a config."""
        return find_order_dependence(self.find(config).function, config)

    def artifact(self, config: Config, target: Target, variant: Variant | None = None) -> Artifact:
        """Source and launch contract for a config; of a trace that fits it unless one is named."""
        variant = variant or self.find(self.spec(target).normalize(config))
        spec = self.spec(target, variant)
        config = spec.normalize(config)
        check_deterministic(variant.function, config, self.settings)
        key = (variant, target, config)
        if (made := self._artifacts.get(key)) is None:
            state = Lowering.of_config(*spec.of(config), self.settings, self.backends.of(target))
            stages = [STANDARD, SCHEDULED, TARGET, EMIT]
            made = with_earlier_launch(run_stages(state, stages[1:]), state, stages)
            # Emptied at once, not one by one: other threads may be looking something up.
            if len(self._artifacts) >= MAX_ARTIFACTS:
                self._artifacts.clear()
            self._artifacts[key] = made
        return made

    def module(self, config: Config, target: Target, variant: Variant | None = None) -> str:
        """The text of a module: device code with the user's host code around it."""
        config = self.spec(target, variant).normalize(config)
        variant = variant or self.find(config)
        artifact = self.artifact(config, target, variant)
        kernel = self._request.kernel
        return with_host_function(artifact, kernel, variant.trace, config, self._host_parts)

    def specialized_values(self) -> list[Callable[..., int]]:
        """How to get the values that host code turned into constants from the arguments."""
        return [origin for origin, _ in self.default.trace.session.specialized]

    def written_arguments(self) -> frozenset[int]:
        """Positions of arguments whose memory the kernel stores into."""
        trace = self.default.trace
        names = set(tensors_written(trace.function))
        tensors = [p.value for p in trace.function.parameters if p.value.name in names]
        written = {tensor.tensor.alias for tensor in tensors}
        return frozenset(i for i, found in enumerate(trace.argument_aliases) if found & written)


def _nearest(config: Config, slots: Collection[int]) -> Iterator[Config]:
    """The config, then with those blocks half and twice as large, and so on."""
    for shift in sorted(range(-12, 13), key=abs) if slots else ():
        scale = [2.0**shift if slot in slots else 1 for slot in range(len(config.block_sizes))]
        sizes = [max(1, int(size * by)) for size, by in zip(config.block_sizes, scale)]
        yield config.updated(block_sizes=sizes)


def _try_to_trace(request: TraceRequest) -> Trace | None:
    try:
        return trace_kernel(request)
    except BaseError:
        return None


def make_spec(
    function: Function, rules: ScheduleRules, tunables: Mapping[str, Fragment], settings: Settings
) -> MultiFormSpec:
    """What a config may say about a function after ``STANDARD``, in all of its structures."""

    def split(function: Function, name: str) -> Function | None:
        state = Lowering(function, settings, config=Config(structure=name))
        made = run_stages(state, [STRUCTURE]).function
        return None if made is function else made

    kind = PlainSpec if settings.disable_autotuner_heuristics else MultiFormSpec
    return kind(
        require_single_programs(function) if settings.deterministic else function,
        rules,
        tunables,
        split=split,
        allow_warp_specialize=settings.allow_warp_specialize,
    )


MAX_TRIED = 32
"""Values of tunables that are tried for a default; each may be a new trace."""
FindUpdate = Callable[[Config], "SharedUpdate | None"]


def check_deterministic(function: Function, config: Config, settings: Settings) -> None:
    """Raise if it is asked for, and results depend on the order of programs under the Config."""
    update = find_order_dependence(function, config) if settings.deterministic else None
    if update is not None:
        deed, harm = update.hazard.value
        raise NondeterministicKernel(
            deed=deed, tensor=update.tensor, harm=harm, meeting=update.meeting, loc=update.op.loc
        )


def choose_deterministic(
    config: Config, tunables: dict[str, Fragment], find_update: FindUpdate
) -> Config:
    """The Config, with other values of the kernel's own tunables if that makes it deterministic."""
    combinations = product(*map(_values, tunables.values()))
    tried = islice(combinations, MAX_TRIED)
    others = (config.updated(**dict(zip(tunables, values))) for values in tried)
    return next((c for c in (config, *others) if find_update(c) is None), config)


def _values(fragment: Fragment) -> list[Any]:
    """The default and what can be reached from it, step by step."""
    found = [fragment.default]
    for value in found:
        found += [other for other in fragment.neighbours(value) if other not in found]
        if len(found) >= MAX_TRIED:
            break
    return found


def require_single_programs(function: Function) -> Function:
    """The function with blocks that must be as large as their axis, where that helps."""
    shared = {axis for update in find_shared_updates(function, {}) for axis in update.axes}
    whole = {b.name: _whole(b) for b in function.blocks if b.name in shared and _can_cover(b)}
    if find_shared_updates(function, whole):
        return function
    blocks = [replace(b, low=whole.get(b.name, b.low)) for b in function.blocks]
    return replace(function, blocks=tuple(blocks)) if whole else function


def find_order_dependence(function: Function, config: Config) -> SharedUpdate | None:
    """The first update whose outcome depends on the order of programs under a Config."""
    blocks = config.get("block_sizes", [])
    slots = {b.name: b.slot for b in function.blocks if b.slot is not None}
    sizes = {name: blocks[slot] for name, slot in slots.items() if slot < len(blocks)}
    return next(iter(find_shared_updates(function, sizes)), None)


def _whole(block: Block) -> int:
    return next_power_of_2(block.extent or 1)


def _can_cover(block: Block) -> bool:
    is_free = block.fixed is None and block.extent is not None
    return is_free and _whole(block) <= min(MAX_SEARCHED_BLOCK, block.high or MAX_SEARCHED_BLOCK)
