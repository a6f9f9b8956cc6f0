"""One implementation with one input inside its process: prepared, checked, timed.

Our kernels are observed: which config they ran with, the default or one found by a search.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite
from time import perf_counter
from typing import Any

import torch

from tilesmith.bench.case import Arguments, Operator
from tilesmith.bench.implementations import ImplementationKind, NotAvailableError, load_function
from tilesmith.bench.job_rows import Stage, harness_failed, raised, raised_while_timing, unavailable
from tilesmith.bench.judging.once import JudgesOnce, predicted
from tilesmith.bench.judging.poison import (
    poison_free_memory,
    poison_results,
    poisoned_allocations,
)
from tilesmith.bench.plan import Job, Options
from tilesmith.bench.reference import Judgement, Reference, fingerprint
from tilesmith.bench.row import INTERPRETED, Cause, Owner, Row, Status
from tilesmith.bench.timing import AmountOfWork, Timed, time_in_turns
from tilesmith.diagnostics.catalogue import BaseError, BaseWarning
from tilesmith.diagnostics.kernel_warnings import ConfigReplaced, WarningLog
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.frontend.containers import tensors_in
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.kernel import Kernel
from tilesmith.jit.runners import is_interpreted
from tilesmith.jit.tuner import MultiRequest, SearchEnd, Tuner, TuneRequest
from tilesmith.lab.failures import one_line
from tilesmith.lab.workload.loading import synchronize
from tilesmith.measure.timer import Work
from tilesmith.schedule.config import Config

MAX_CODE_LINES = 300
"""Of a row; what is longer is not read on a page."""


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
        self._bounds: dict[str, BoundKernel] = {}
        self._fallbacks: dict[str, str] = {}
        self.tune_s = 0.0
        self.ends: list[SearchEnd] = []
        """Of searches, in order."""
        self.tuners: dict[KernelDefinition, Tuner] = {}
        """What kernels were given when they were made."""

    def first_config(self, bound: BoundKernel, args: tuple[Any, ...]) -> Config | None:
        """None for the decorator's or the default config, else the winner of a search."""
        name = bound.definition.name
        self._bounds[name] = bound
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
        texts = [f"{name}: {config}" for name, config in self._configs.items()]
        if len(texts) == 1:
            texts = [str(config) for config in self._configs.values()]
        fallbacks = [
            f"the default config of {name} does not build: {problem}"
            for name, problem in self._fallbacks.items()
        ]
        if not texts and any(is_interpreted(kernel.settings) for kernel in _loaded_kernels()):
            fallbacks = [INTERPRETED]
        found: dict[str, Any] = {"config": "; ".join(texts), "fallback": "; ".join(fallbacks)}
        found |= predicted(self._bounds, self._configs)
        found["code"] = self._code()
        if self._budget_s is not None:
            found["tune_s"] = self.tune_s
            found["num_configs"] = sum(end.num_tried for end in self.ends)
            if not all(end.is_measured for end in self.ends):
                found["reason"] = "the search measured nothing; the default config was used"
        return found

    def _code(self) -> str:
        """The code of each kernel under its config; nothing where that cannot be made again."""
        texts: list[str] = []
        for name, bound in self._bounds.items():
            with suppress(BaseError, RuntimeError, ValueError):
                texts.append(bound.to_code(self._configs[name]))
        lines = "\n\n".join(texts).splitlines()
        more = [f"# ... {len(lines) - MAX_CODE_LINES} more lines"]
        return "\n".join(lines[:MAX_CODE_LINES] + (more if len(lines) > MAX_CODE_LINES else []))


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


def _loaded_kernels() -> Iterator[Kernel]:
    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            # Not isinstance: it asks proxies in other libraries for their __class__.
            if type(value) is Kernel:
                yield value


NO_TRITON_DRIVER = "active drivers"
"""From what Triton says where there is no GPU."""


class HarnessError(Exception):
    """What is not the implementation's fault."""


@dataclass(eq=False, repr=False)
class Trial:
    """Keeps the row so far; every step returns it."""

    job: Job
    options: Options
    operator: Operator
    arguments: Arguments
    reference: Reference | None
    row: Row
    announce: Callable[[Stage, Row], object] | None = None
    """Told of stages that begin."""

    def __post_init__(self) -> None:
        self._fingerprint = fingerprint(self.arguments)
        reference, options, job = self.reference, self.options, self.job
        self._judge = None
        if reference is not None:
            if reference.arguments != self._fingerprint:
                raise ValueError(
                    "the input is not the same in every process; make() must be repeatable"
                )
            place = (getattr(torch, job.dtype), job.device, self.arguments)
            roundings = self.operator.intermediates(*place, job.implementation.target)
            self._judge = JudgesOnce(self.operator, self.arguments, reference, roundings)
        is_tuned = job.implementation.kind is ImplementationKind.TUNED
        budget_s = options.tune_budget_s if is_tuned else None
        is_forced = not options.use_cache
        self._tuner = ObservedTuner(budget_s, is_forced=is_forced, announce=self._begin)
        self.work: Work | None = None
        self._baseline: Work | None = None
        self._amount: AmountOfWork | None = None

    def check(self) -> Row:
        """Build, call twice over poisoned memory, judge both results."""
        implementation = self.job.implementation
        self._begin(Stage.BUILD)
        try:
            function = load_function(implementation, self.operator)
            # All of all loaded modules: a function may call any of them.
            for kernel in _loaded_kernels():
                self._tuner.observe(kernel.definition)
            arguments = self.arguments
            self.work = lambda: function(*arguments)
            self._call_and_judge(self.work)
        except HarnessError as error:
            self.row = harness_failed(self.row, str(error))
        except NotAvailableError as error:
            self.row = unavailable(self.row, str(error), Cause.NOT_INSTALLED)
        except BaseException as error:
            self.row = self._failed(error)
        return self.row

    def try_baseline(self) -> Row:
        """Call the eager form; if it fails there is no speedup, and the row says why."""
        arguments, eager = self.arguments, self.operator.eager
        self._begin(Stage.BASELINE)
        try:
            result = eager(*arguments)
            synchronize(self.job.device)
            judgement = self._judged(result)
            self._baseline = lambda: eager(*arguments)
            self._update(baseline_error=_finite(judgement.error))
        except BaseException as error:
            self._note(f"no speedup: eager raised {one_line(error)}")
        return self.row

    def measure(self) -> Row:
        """Time it, in turns with the baseline where there is one."""
        assert self.work is not None
        self._begin(Stage.MEASURE)
        try:
            timed = self._time(self.work)
        except BaseException as error:
            self.row = raised_while_timing(self.row, error)
            return self.row
        return self.finish(timed)

    def finish(self, timed: Timed) -> Row:
        """The row with its times, if a call is still right after them."""
        assert self.work is not None
        assert self._amount is not None
        fields = timed.fields()
        if self.job.implementation.kind is ImplementationKind.EAGER:
            fields |= {"baseline_ms": fields["latency_ms"], "baseline_spread": fields["spread"]}
            fields["speedup"] = 1.0
        for note in timed.notes:
            self._note(note)
        try:
            # What counts its calls, or leaves something behind, may be wrong by now.
            result = self.work()
            synchronize(self.job.device)
            if fingerprint(self.arguments) != self._fingerprint:
                self._reject("it changed its arguments while it was timed")
            self._accept(self._judged(result), "a call after timing: ")
        except BaseException as error:
            self.row = raised_while_timing(self.row, error)
            return self.row
        if self.row.status is Status.OK:
            self._update(**fields, **self._amount.rates(fields["latency_ms"]))
        return self.row

    def _failed(self, error: BaseException) -> Row:
        if self.job.device == "cpu" and NO_TRITON_DRIVER in one_line(error):
            return unavailable(self.row, f"it needs a GPU: {one_line(error)}")
        return raised(self.row, error)

    def _call_and_judge(self, work: Work) -> None:
        arguments = self.arguments
        self._poison()
        start = perf_counter()
        with poisoned_allocations():
            first = work()
            synchronize(self.job.device)
        self._update(compile_s=perf_counter() - start - self._tuner.tune_s)
        if self.job.owner is Owner.OURS:
            self._update(**self._tuner.facts())
        kept = [tensor.detach().clone() for tensor in tensors_in(first)]
        poison_results(first, arguments)
        del first
        self._begin(Stage.CALL)
        with poisoned_allocations():
            second = work()
            synchronize(self.job.device)
        self._begin(Stage.JUDGE)
        self._accept(self._judged(kept), "")
        self._accept(self._judged(second), "a second call: ")
        if fingerprint(arguments) != self._fingerprint:
            self._reject("it changed its arguments")
        if self.row.status is not Status.OK:
            return
        try:
            self._amount = AmountOfWork(self.operator, arguments, second)
        except Exception as error:
            raise HarnessError(f"its work cannot be counted: {one_line(error)}") from error

    def _poison(self) -> None:
        if self.reference is None:
            return
        sizes = {4, *(t.element_size() for t in tensors_in(self.arguments))}
        with suppress(RuntimeError, MemoryError):  # where there is no room, none is poisoned
            poison_free_memory(self.reference.results, sorted(sizes))

    def _judged(self, returned: Any) -> Judgement:
        if self._judge is None:
            return Judgement()
        try:
            return self._judge.judge(returned)
        except Exception as error:
            raise HarnessError(f"the result cannot be judged: {one_line(error)}") from error

    def _accept(self, judgement: Judgement, prefix: str) -> None:
        if self.row.status is not Status.OK:
            return
        self._update(error=_finite(judgement.error), error_share=_finite(judgement.share))
        if judgement.problem:
            self._reject(prefix + judgement.problem)

    def _reject(self, reason: str) -> None:
        self._update(status=Status.FAILED, cause=Cause.WRONG_RESULT, reason=reason)

    def _time(self, work: Work) -> Timed:
        how = (self.is_right, self.job.device, self.options)
        try:
            return time_in_turns(work, self._baseline, *how)
        except Exception as error:
            if self._baseline is None:
                raise
            self._note(f"no speedup: timing with the baseline raised {one_line(error)}")
            return time_in_turns(work, None, *how)

    def is_right(self, graph: Work) -> bool:
        """Whether a replay writes the results anew."""
        poison_results(graph(), self.arguments)
        result = graph()
        synchronize(self.job.device)
        return not self._judged(result).problem

    def _begin(self, stage: Stage) -> None:
        if self.announce is None:
            return
        try:
            self.announce(stage, self.row)
        except OSError as error:
            raise HarnessError(f"no file can be left behind: {error}") from error

    def _update(self, **fields: Any) -> None:
        self.row = replace(self.row, **fields)

    def _note(self, text: str) -> None:
        self._update(reason="; ".join(filter(None, [self.row.reason, text])))


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
