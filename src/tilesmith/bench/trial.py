"""One implementation with one input inside its process: prepared, checked, timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite
from time import perf_counter
from typing import Any

import torch

from tilesmith.backends.table import BACKENDS
from tilesmith.bench.case import Arguments, Operator
from tilesmith.bench.implementations import ImplementationKind, NotAvailableError, load_function
from tilesmith.bench.job_rows import (
    Stage,
    harness_failed,
    raised,
    raised_while_timing,
    unavailable,
)
from tilesmith.bench.ours import ObservedTuner, observe_kernels
from tilesmith.bench.plan import Job, Options
from tilesmith.bench.reference import (
    Judge,
    Judgement,
    Reference,
    fingerprint,
    storage_bytes,
    total_bytes,
)
from tilesmith.bench.row import Cause, Owner, Row, Status
from tilesmith.bench.timing import TimingOptions, time_in_turns
from tilesmith.frontend.containers import tensors_in
from tilesmith.lab.failures import one_line
from tilesmith.measure.timer import Work
from tilesmith.runtime.device import target_of
from tilesmith.schedule.model.estimates import Device

NO_TRITON_DRIVER = "active drivers"
"""From what Triton says where there is no GPU."""
POISON = 0xFF
"""As every byte: NaN in all floating-point types, -1 in integers."""
COPIES = 3
"""Of each size: an allocator may hand out any of its free blocks."""
RATE_CLASSES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int8: "i8",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
}


class HarnessError(Exception):
    """What is not the implementation's fault."""


@dataclass(frozen=True)
class TrialSetting:
    """What a trial is about."""

    job: Job
    options: Options
    operator: Operator
    arguments: Arguments
    reference: Reference | None

    @property
    def device(self) -> torch.device:
        """The device of the arguments."""
        return torch.device(self.job.device)

    @property
    def intermediates(self) -> tuple[torch.dtype, ...]:
        """What intermediates are rounded to in its type on its device."""
        dtype, target = getattr(torch, self.job.dtype), self.job.implementation.target
        return self.operator.intermediates(dtype, self.job.device, self.arguments, target)


class Trial:
    """Keeps the row so far; every step returns it. ``announce`` is told of stages that begin."""

    def __init__(
        self,
        setting: TrialSetting,
        row: Row,
        announce: Callable[[Stage, Row], object] | None = None,
    ) -> None:
        self.row = row
        self._setting = setting
        self._announce = announce
        self._fingerprint = fingerprint(setting.arguments)
        reference = setting.reference
        if reference is not None and reference.arguments != self._fingerprint:
            raise ValueError(
                "the input is not the same in every process; make() must be repeatable"
            )
        self._judge = None
        if reference is not None:
            self._judge = Judge(
                setting.operator, setting.arguments, reference, setting.intermediates
            )
        self._tuner = self._make_tuner()
        self._work: Work | None = None
        self._baseline: Work | None = None
        self._amount: AmountOfWork | None = None

    def check(self) -> Row:
        """Build, call twice over poisoned memory, judge both results."""
        implementation = self._setting.job.implementation
        self._begin(Stage.BUILD)
        try:
            function = load_function(implementation, self._setting.operator)
            observe_kernels(self._tuner)
            arguments = self._setting.arguments
            self._work = lambda: function(*arguments)
            self._call_and_judge(self._work)
        except HarnessError as error:
            self.row = harness_failed(self.row, str(error))
        except NotAvailableError as error:
            self.row = unavailable(self.row, str(error), Cause.NOT_INSTALLED)
        except BaseException as error:
            self.row = self._failed(error)
        return self.row

    def try_baseline(self) -> Row:
        """Call the eager form; if it fails there is no speedup, and the row says why."""
        arguments, eager = self._setting.arguments, self._setting.operator.eager
        self._begin(Stage.BASELINE)
        try:
            result = eager(*arguments)
            self._synchronize()
            judgement = self._judged(result)
            self._baseline = lambda: eager(*arguments)
            self._update(baseline_error=_finite(judgement.error))
        except BaseException as error:
            self._note(f"no speedup: eager raised {one_line(error)}")
        return self.row

    def measure(self) -> Row:
        """Time it, in turns with the baseline where there is one; it must be right even then."""
        assert self._work is not None
        assert self._amount is not None
        self._begin(Stage.MEASURE)
        try:
            fields = self._time(self._work)
            self._judge_again(self._work)
        except BaseException as error:
            self.row = raised_while_timing(self.row, error)
            return self.row
        if self.row.status is Status.OK:
            self._update(**fields, **self._amount.rates(fields["latency_ms"]))
        return self.row

    def _judge_again(self, work: Work) -> None:
        """What counts its calls, or leaves something behind, may be wrong by now."""
        result = work()
        self._synchronize()
        if fingerprint(self._setting.arguments) != self._fingerprint:
            self._reject("it changed its arguments while it was timed")
        self._accept(self._judged(result), "a call after timing: ")

    def _failed(self, error: BaseException) -> Row:
        if self._setting.device.type == "cpu" and NO_TRITON_DRIVER in one_line(error):
            return unavailable(self.row, f"it needs a GPU: {one_line(error)}")
        return raised(self.row, error)

    def _make_tuner(self) -> ObservedTuner:
        options = self._setting.options
        is_tuned = self._setting.job.implementation.kind is ImplementationKind.TUNED
        budget = options.tune_budget_s if is_tuned else None
        return ObservedTuner(budget, is_forced=not options.use_cache, announce=self._begin)

    def _call_and_judge(self, work: Work) -> None:
        arguments = self._setting.arguments
        self._poison()
        start = perf_counter()
        first = work()
        self._synchronize()
        self._update(compile_s=perf_counter() - start - self._tuner.tune_s)
        if self._setting.job.owner is Owner.OURS:
            self._update(**self._tuner.facts())
        kept = [tensor.detach().clone() for tensor in tensors_in(first)]
        poison_results(first, arguments)
        del first
        self._begin(Stage.CALL)
        second = work()
        self._synchronize()
        self._begin(Stage.JUDGE)
        self._accept(self._judged(kept), "")
        self._accept(self._judged(second), "a second call: ")
        if fingerprint(arguments) != self._fingerprint:
            self._reject("it changed its arguments")
        if self.row.status is Status.OK:
            self._amount = self._work_done(second)

    def _work_done(self, result: Any) -> AmountOfWork:
        try:
            return AmountOfWork(self._setting.operator, self._setting.arguments, result)
        except Exception as error:
            raise HarnessError(f"its work cannot be counted: {one_line(error)}") from error

    def _poison(self) -> None:
        if self._setting.reference is None:
            return
        sizes = {4, *(t.element_size() for t in tensors_in(self._setting.arguments))}
        with suppress(RuntimeError, MemoryError):  # where there is no room, none is poisoned
            poison_free_memory(self._setting.reference.results, sorted(sizes))

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

    def _time(self, work: Work) -> dict[str, Any]:
        options = self._setting.options
        how = TimingOptions(self._setting.device, options.regime == "warm", options.use_graph)
        try:
            timed = time_in_turns(work, self._baseline, self._is_right, how)
        except Exception as error:
            if self._baseline is None:
                raise
            self._note(f"no speedup: timing with the baseline raised {one_line(error)}")
            timed = time_in_turns(work, None, self._is_right, how)
        for note in timed.notes:
            self._note(note)
        fields = timed.fields()
        if self._setting.job.implementation.kind is ImplementationKind.EAGER:
            fields |= {"baseline_ms": fields["latency_ms"], "baseline_spread": fields["spread"]}
            fields["speedup"] = 1.0
        return fields

    def _is_right(self, graph: Work) -> bool:
        """Whether a replay writes the results anew."""
        poison_results(graph(), self._setting.arguments)
        result = graph()
        self._synchronize()
        return not self._judged(result).problem

    def _synchronize(self) -> None:
        if self._setting.device.type != "cpu":
            torch.cuda.synchronize(self._setting.device)

    def _begin(self, stage: Stage) -> None:
        if self._announce is None:
            return
        try:
            self._announce(stage, self.row)
        except OSError as error:
            raise HarnessError(f"no file can be left behind: {error}") from error

    def _update(self, **fields: Any) -> None:
        self.row = replace(self.row, **fields)

    def _note(self, text: str) -> None:
        self._update(reason="; ".join(filter(None, [self.row.reason, text])))


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def poison_free_memory(shapes: Sequence[torch.Tensor], element_sizes: Sequence[int]) -> None:
    """Fill and free blocks like the given tensors, of each element size: allocators reuse them."""
    filled = [
        torch.empty(like.numel() * size, dtype=torch.uint8, device=like.device).fill_(POISON)
        for like in shapes
        for size in element_sizes
        for _ in range(COPIES)
    ]
    del filled


def poison_results(returned: Any, arguments: Any) -> None:
    """Overwrite results, so that a second call cannot hand them out again as its own."""
    kept = {tensor.untyped_storage().data_ptr() for tensor in tensors_in(arguments)}
    for tensor in tensors_in(returned):
        # A result may be an argument, or a view of one.
        if tensor.untyped_storage().data_ptr() not in kept and tensor.numel():
            storage_bytes(tensor.detach()).fill_(POISON)


class AmountOfWork:
    """How much one call does."""

    def __init__(self, operator: Operator, arguments: Arguments, result: Any) -> None:
        self.flops = operator.flops(*arguments) if operator.flops is not None else None
        if operator.num_bytes is not None:
            self.num_bytes = float(operator.num_bytes(*arguments, result))
        else:
            self.num_bytes = float(total_bytes(arguments) + total_bytes(result))
        self._first = next(tensors_in(arguments), None)

    def rates(self, latency_ms: float) -> dict[str, float]:
        """Fields of a row: TFLOP/s, GB/s and the roofline."""
        found = {"gbps": self.num_bytes / latency_ms / 1e6}
        if self.flops is not None:
            found["tflops"] = self.flops / latency_ms / 1e9
        if self._first is not None:
            device = BACKENDS.rules(target_of(self._first.device)).device()
            found["roofline_ms"] = self._roofline_ms(device, self._first.dtype)
        return found

    def _roofline_ms(self, device: Device, dtype: torch.dtype) -> float:
        memory_ms = self.num_bytes / device.dram_rate / 1e6
        rate_class = RATE_CLASSES.get(dtype)
        if self.flops is None or rate_class is None:
            return memory_ms
        return max(memory_ms, self.flops / device.matrix_rate(rate_class) / 1e6)
