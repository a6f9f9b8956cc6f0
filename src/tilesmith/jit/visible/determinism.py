"""``torch.use_deterministic_algorithms(True)``, and what is said of a kernel's determinism.

Results depend on the order of programs where these add floats to one element, or the like: known of
each config. Only calls of such kernels ask torch; they run with another config, or are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.kernel_warnings import NondeterministicResult
from tilesmith.schedule.config import Config

SAME_BITS = "the same bits in every run"


def determinism_text(bound: Any, config: Config) -> str:
    """Whether results of a bound kernel are the same in every run under a config; if not, why."""
    dependence = bound.order_dependence(config)
    return f"may differ from run to run: {dependence}" if dependence else SAME_BITS


def ordered_call(bound: Any, executable: Any) -> Callable[..., Any]:
    """The call of an executable; one that asks torch where its results depend on the order."""
    is_settled = bound.settings.deterministic or not executable.runner.is_compiling
    if is_settled or not bound.order_dependence(executable.config):
        return executable.call
    run, other = executable.call, _OrderedKernel(bound)
    are_wanted = torch.are_deterministic_algorithms_enabled

    def call(*args: Any) -> Any:
        return other.call(run, args) if are_wanted() else run(*args)

    return call


class _OrderedKernel:
    """The same kernel with ``deterministic=True``, compiled when torch first asks for it."""

    def __init__(self, bound: Any) -> None:
        self._bound = bound
        self._made: Any = None
        self._refusal: errors.NondeterministicKernel | None = None

    def call(self, otherwise: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if self._made is None and self._refusal is None:
            try:
                self._made = self._make(args)
            except errors.NondeterministicKernel as refusal:
                self._refusal = refusal
        if self._made is not None:
            return self._made.call_any(*args)
        assert self._refusal is not None
        details: dict[str, Any] = {"loc": self._refusal.loc, **self._refusal.details}
        if not torch.is_deterministic_algorithms_warn_only_enabled():
            raise errors.NondeterministicAlgorithm(**details)
        self._bound.definition.warnings.warn(NondeterministicResult, **details)
        return otherwise(*args)

    def _make(self, args: tuple[Any, ...]) -> Any:
        bound, definition = self._bound, self._bound.definition
        settings = replace(definition.settings, deterministic=True)
        # Configs of the decorator count as far as they are deterministic.
        configs = [config for config in bound.configs if not bound.order_dependence(config)]
        changed = definition.changed(settings=settings, configs=configs)
        made = type(bound)(changed, args, bound.target, bound.device, kernel=bound.kernel)
        made.ensure_config_exists(args)
        return made
