"""Our kernels under observation: with the default config or one found by a search, and which."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from tilesmith.bench.job_rows import Stage
from tilesmith.bench.row import INTERPRETED
from tilesmith.diagnostics.catalogue import BaseWarning
from tilesmith.diagnostics.kernel_warnings import ConfigReplaced, WarningLog
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.kernel import Kernel
from tilesmith.jit.runners import is_interpreted
from tilesmith.jit.tuner import MultiRequest, SearchEnd, Tuner, TuneRequest
from tilesmith.schedule.config import Config


class NoConfigWorksError(RuntimeError):
    """A search found nothing that runs; the interpreter would be timed instead."""


class ObservedTuner:
    """What kernels ask at a first call: no search and nothing stored, or a search."""

    takes_stored = False

    def __init__(
        self,
        budget_s: float | None,
        *,
        is_forced: bool = True,
        announce: Callable[[Stage], object] = lambda stage: None,
    ) -> None:
        self._budget_s = budget_s
        self._is_forced = is_forced
        self._announce = announce
        self._configs: dict[str, Config] = {}
        self._fallbacks: dict[str, str] = {}
        self.tune_s = 0.0
        self.ends: list[SearchEnd] = []
        """Of searches, in order."""
        self.tuners: dict[KernelDefinition, Tuner] = {}
        """What kernels were given when they were made."""

    def first_config(self, bound: BoundKernel, args: tuple[Any, ...]) -> Config | None:
        """None for the decorator's or the default config, else the winner of a search."""
        name = bound.definition.name
        if self._budget_s is None:
            self._configs[name] = bound.configs[0] if bound.configs else bound.default_config()
            return None
        keywords = {"autotune_progress_bar": False, "autotune_log_level": logging.WARNING}
        request = TuneRequest(self._is_forced, self._budget_s, keywords)
        config = self.tune(bound, args, request)
        if config is None:
            raise NoConfigWorksError(f"no config of {name} works")
        self._configs[name] = config
        return config

    def tune(
        self, bound: BoundKernel, args: tuple[Any, ...], request: TuneRequest
    ) -> Config | None:
        """Search, and remember what it took."""
        search = self._own_tuner(bound).tune
        self._announce(Stage.TUNE)
        start = perf_counter()
        try:
            return search(bound, args, replace(request, on_end=self.ends.append))
        finally:
            self.tune_s += perf_counter() - start
            self._announce(Stage.BUILD)

    def tune_multi(
        self, cases: Sequence[tuple[BoundKernel, tuple[Any, ...]]], request: MultiRequest
    ) -> Config | None:
        """As any kernel does."""
        return self._own_tuner(cases[0][0]).tune_multi(cases, request)

    def observe(self, definition: KernelDefinition) -> None:
        """Stand between a kernel and its tuner."""
        given = definition.tuner
        own = given.tuners.get(definition) if isinstance(given, ObservedTuner) else given
        if own is not None:
            self.tuners[definition] = own
        definition.tuner = self
        definition.warnings = ReplacementLog(definition, self)

    def _own_tuner(self, bound: BoundKernel) -> Tuner:
        if bound.definition not in self.tuners:
            raise NoConfigWorksError(f"{bound.definition.name} was made without a tuner")
        return self.tuners[bound.definition]

    def replaced(self, name: str, problem: object, used: Config) -> None:
        """The default of a kernel does not build, and another config runs."""
        self._configs[name] = used
        self._fallbacks.setdefault(name, str(problem))

    def facts(self) -> dict[str, Any]:
        """Fields of a row."""
        found: dict[str, Any] = {"config": self._text(), "fallback": self._fallback_text()}
        if self._budget_s is not None:
            found["tune_s"] = self.tune_s
            found["num_configs"] = sum(end.num_tried for end in self.ends)
            if not all(end.is_measured for end in self.ends):
                found["reason"] = "the search measured nothing; the default config was used"
        return found

    def _fallback_text(self) -> str:
        if not self._configs and any(
            is_interpreted(kernel.settings) for kernel in _loaded_kernels()
        ):
            return INTERPRETED
        return "; ".join(
            f"the default config of {name} does not build: {problem}"
            for name, problem in self._fallbacks.items()
        )

    def _text(self) -> str:
        if len(self._configs) == 1:
            return str(next(iter(self._configs.values())))
        return "; ".join(f"{name}: {config}" for name, config in self._configs.items())


class ReplacementLog(WarningLog):
    """The warnings of a kernel, of which one is news for a tuner, whether it is printed or not."""

    def __init__(self, definition: KernelDefinition, tuner: ObservedTuner) -> None:
        super().__init__(definition.warnings.ignore)
        self._name = definition.name
        self._tuner = tuner

    def warn(self, warning: type[BaseWarning], *, loc: SourceLocation, **details: Any) -> None:
        """Print it as usual."""
        if issubclass(warning, ConfigReplaced):
            self._tuner.replaced(self._name, details["problem"], details["used"])
        super().warn(warning, loc=loc, **details)


def observe_kernels(tuner: ObservedTuner) -> None:
    """Have all kernels of all loaded modules ask this tuner: a function may call any of them."""
    for kernel in _loaded_kernels():
        tuner.observe(kernel.definition)


def _loaded_kernels() -> Iterator[Kernel]:
    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            # Not isinstance: it asks proxies in other libraries for their __class__.
            if type(value) is Kernel:
                yield value
