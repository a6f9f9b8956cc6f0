"""What is compiled for one specialization of a kernel, each part made once and on demand.

A trace serves every config, unless host code looks at the config or at data: then there are more.
A specification belongs to a trace and a target, an artifact also to a config.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilesmith.analysis.effects import tensors_written
from tilesmith.analysis.run_order import SharedUpdate
from tilesmith.artifacts import Artifact
from tilesmith.backends.interface import BackendTable
from tilesmith.compiler.determinism import (
    check_deterministic,
    choose_deterministic,
    find_order_dependence,
    require_single_programs,
)
from tilesmith.compiler.lowering import Lowering, run_stages
from tilesmith.compiler.module_source import HostMemo, with_host_function
from tilesmith.compiler.pipeline import EMIT, SCHEDULED, STANDARD, STRUCTURE, TARGET, TRACE
from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.frontend.trace import Trace, TraceRequest, trace_kernel
from tilesmith.frontend.tracing.argument_template import ArgumentTemplate
from tilesmith.ir.function import Function
from tilesmith.schedule.config import Config
from tilesmith.schedule.product_forms import MultiFormSpec
from tilesmith.schedule.rules import ScheduleRules
from tilesmith.schedule.space.fragments import Fragment
from tilesmith.settings import Settings
from tilesmith.targets import Target

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
        self._request = replace(request, arguments=())
        self._template = ArgumentTemplate(request.arguments)
        self._volatile: frozenset[str] = frozenset()
        self.default = self._trace(request.arguments, {}, {})
        """The first trace."""
        self.variants = [self.default]
        """All traces, the newest first."""
        self._specs: dict[tuple[Variant, Target], MultiFormSpec] = {}
        self._artifacts: dict[tuple[Variant, Target, Config], Artifact] = {}
        self._host_parts: HostMemo = {}

    def find(self, config: Config) -> Variant:
        """A trace that fits the config."""
        for variant in self.variants:
            if variant.fits(config):
                return variant
        return self.trace_anew(config, self._template.materialise())

    def trace_anew(
        self, config: Config, arguments: tuple[Any, ...], changed: frozenset[str] = frozenset()
    ) -> Variant:
        """A new trace for a config and these arguments.

        ``changed`` says where numbers stand that were taken for constants and are none: from now
        on they are parameters of device code.
        """
        self._volatile |= changed
        blocks = dict(enumerate(config.get("block_sizes", [])))
        fragments = self.default.trace.session.tunable_fragments
        tunables = {name: config[name] for name in fragments if name in config}
        variant = self._trace(arguments, blocks, tunables)
        self.variants.insert(0, variant)
        return variant

    def _trace(
        self, arguments: tuple[Any, ...], blocks: Mapping[int, int], tunables: Mapping[str, Any]
    ) -> Variant:
        request = replace(self._request, arguments=arguments, block_sizes=blocks, tunables=tunables)
        trace = self._trace_volatile(request) if self._volatile else trace_kernel(request)
        state = Lowering(trace.function, self.settings, request.warnings)
        return Variant(trace, run_stages(state, [TRACE, STANDARD]).function)

    def _trace_volatile(self, request: TraceRequest) -> Trace:
        """Numbers that change are parameters, unless device code needs them as constants."""
        try:
            return trace_kernel(replace(request, volatile=self._volatile))
        except BaseError:
            return trace_kernel(request)

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
        config = self.spec(target).default_config()
        if not self.settings.deterministic:
            return config
        tunables = self.default.trace.session.tunable_fragments
        return choose_deterministic(config, tunables, self.find_order_dependence)

    def find_order_dependence(self, config: Config) -> SharedUpdate | None:
        """The first update whose outcome depends on the order of programs under a config."""
        return find_order_dependence(self.find(config).function, config)

    def artifact(self, config: Config, target: Target, variant: Variant | None = None) -> Artifact:
        """Source and launch contract for a config; of a trace that fits it unless one is named."""
        variant = variant or self._fitting(config, target)
        spec = self.spec(target, variant)
        config = spec.normalize(config)
        check_deterministic(variant.function, config, self.settings)
        key = (variant, target, config)
        made = self._artifacts.get(key)
        if made is None:
            backend = self.backends.of(target)
            state = Lowering.of_config(*spec.of(config), self.settings, backend)
            made = run_stages(state, [SCHEDULED, TARGET, EMIT]).known_artifact
            # Emptied at once, not one by one: other threads may be looking something up.
            if len(self._artifacts) >= MAX_ARTIFACTS:
                self._artifacts.clear()
            self._artifacts[key] = made
        return made

    def module(self, config: Config, target: Target) -> str:
        """The text of a module: device code with the user's host code around it."""
        config = self.spec(target).normalize(config)
        variant = self.find(config)
        artifact = self.artifact(config, target, variant)
        kernel = self._request.kernel
        return with_host_function(artifact, kernel, variant.trace, config, self._host_parts)

    def _fitting(self, config: Config, target: Target) -> Variant:
        return self.find(self.spec(target).normalize(config))

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


def make_spec(
    function: Function, rules: ScheduleRules, tunables: Mapping[str, Fragment], settings: Settings
) -> MultiFormSpec:
    """What a config may say about a function after ``STANDARD``, in all of its structures."""

    def split(function: Function, name: str) -> Function | None:
        state = Lowering(function, settings, config=Config(structure=name))
        made = run_stages(state, [STRUCTURE]).function
        return None if made is function else made

    return MultiFormSpec(
        require_single_programs(function) if settings.deterministic else function,
        rules,
        tunables,
        split=split,
        allow_warp_specialize=settings.allow_warp_specialize,
    )
