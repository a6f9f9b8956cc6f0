"""Traces of one specialization. Usually there is one.

Host code that looks at the Config or at data makes more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilesmith.compiler.check_loops import check_loops
from tilesmith.compiler.check_products import check_products
from tilesmith.compiler.compile import optimise
from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.frontend.trace import Trace, TraceRequest, trace_kernel
from tilesmith.ir.function import Function
from tilesmith.jit.argument_template import ArgumentTemplate
from tilesmith.runtime.arguments import compile_guard
from tilesmith.schedule.config import Config


@dataclass(frozen=True)
class Variant:
    """One trace after the standard passes."""

    trace: Trace
    function: Function

    def fits(self, config: Config) -> bool:
        """Whether host code would see the same block sizes and tunables under this Config."""
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

    def changed_numbers(self, names: tuple[str, ...], captured: tuple[Any, ...]) -> frozenset[str]:
        """Where numbers stand that the trace took for constants and are others now."""
        constants = self.trace.constants
        checks = [
            (guard.number, compile_guard(names, [guard], constants))
            for guard in self.trace.guards
            if guard.number
        ]
        return frozenset(
            number for number, holds in checks if holds is not None and not holds(*captured)
        )


class VariantStore:
    """All traces of one specialization, made on demand."""

    def __init__(self, request: TraceRequest) -> None:
        # The template stands for the arguments, which must not be kept alive.
        self._request = replace(request, arguments=())
        self._template = ArgumentTemplate(request.arguments)
        self._volatile: frozenset[str] = frozenset()
        self.default = self._trace(request.arguments, {}, {})
        self._variants = [self.default]

    def find(self, config: Config) -> Variant:
        """A trace that fits the Config."""
        for variant in self._variants:
            if variant.fits(config):
                return variant
        return self.trace_for(config, self._template.materialise())

    def trace_for(self, config: Config, arguments: tuple[Any, ...]) -> Variant:
        """A new trace for a Config and these arguments."""
        blocks = dict(enumerate(config.get("block_sizes", [])))
        fragments = self.default.trace.session.tunable_fragments
        tunables = {name: config[name] for name in fragments if name in config}
        variant = self._trace(arguments, blocks, tunables)
        self._variants.insert(0, variant)
        return variant

    def note_changes(self, captured: tuple[Any, ...]) -> None:
        """Numbers taken for constants that these captured values change are runtime numbers."""
        for variant in self._variants:
            self._volatile |= variant.changed_numbers(self._request.kernel.captured, captured)

    def _trace(
        self, arguments: tuple[Any, ...], blocks: Mapping[int, int], tunables: Mapping[str, Any]
    ) -> Variant:
        request = replace(self._request, arguments=arguments, block_sizes=blocks, tunables=tunables)
        trace = self._trace_volatile(request) if self._volatile else trace_kernel(request)
        check_loops(trace.function)
        function = optimise(trace.function)
        check_products(function, request.warnings)
        return Variant(trace, function)

    def _trace_volatile(self, request: TraceRequest) -> Trace:
        """Numbers that change are parameters, unless device code needs them as constants."""
        try:
            return trace_kernel(replace(request, volatile=self._volatile))
        except BaseError:
            return trace_kernel(request)
