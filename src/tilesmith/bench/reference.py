"""Arguments of an input and its exact result, for workers that judge by it.

It is kept in a file, unless working it out takes less time than reading it.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from tilesmith.bench.case import Arguments, Operator, load_suite
from tilesmith.bench.contents import content_number, own_tensor
from tilesmith.bench.plan import Job
from tilesmith.frontend.containers import map_tensors, tensors_in
from tilesmith.numerics.compare import AccuracyError, ErrorReport, measure_by
from tilesmith.numerics.tolerance import Budget

TYPES = ".types"
READ_BYTES_PER_S = 1e9
"""About what a file of tensors is read with, onto a device too."""
SHARE = 0.9
"""Of the machine's memory, for a process without a limit of its own."""
GB = 1e9


def widen(value: Any) -> Any:
    """Floating-point tensors as float64, all else as it is."""
    return map_tensors(
        value, lambda tensor: tensor.double() if tensor.dtype.is_floating_point else tensor
    )


def fingerprint(value: Any) -> list[int]:
    """A number for each tensor that is the same for the same content, in any process."""
    return [content_number(tensor.detach()) for tensor in tensors_in(value)]


def total_bytes(value: Any) -> int:
    """Bytes of all tensors, each element counted once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(value))


@dataclass(frozen=True)
class Reference:
    """What an operator's results are in float64, for arguments that a number stands for."""

    results: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    arguments: list[int] = field(default_factory=list[int])
    """Their fingerprint."""
    dtypes: list[torch.dtype] = field(default_factory=list[torch.dtype])
    """Of the eager form's results, where they are known."""
    sizes: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    """As of Operator; none where all elements of a result have one size."""

    def save(self, path: Path, *, with_results: bool = True) -> None:
        """Write it; a reader never sees half of it."""
        self.save_types(path)
        made = {"results": self.results, "sizes": self.sizes} if with_results else None
        _save({"made": made, "arguments": self.arguments}, path)

    def save_types(self, path: Path) -> None:
        """Write the types alone, beside the rest."""
        _save(self.dtypes, path.with_suffix(TYPES))

    def is_worth_reading(self, made_in_s: float) -> bool:
        """Whether that takes less time than to work it out again."""
        return sum(result.nbytes for result in self.results) < made_in_s * READ_BYTES_PER_S

    @classmethod
    def load(cls, path: Path, device: torch.device, make: Callable[[], Reference]) -> Reference:
        """Read what was saved; ``make`` gives the results where they were not."""
        found: dict[str, Any] = torch.load(path, weights_only=True, map_location=device)
        dtypes = torch.load(path.with_suffix(TYPES), weights_only=True)
        made = found["made"] or vars(make())
        return cls(made["results"], found["arguments"], dtypes, made["sizes"])


def _save(content: object, path: Path) -> None:
    partial = path.with_suffix(".partial")
    torch.save(content, partial)
    partial.replace(path)


def work_out(operator: Operator, arguments: Arguments) -> Reference:
    """The operator in float64; integers in results stay what they are."""
    before = fingerprint(arguments)
    if operator.exact is not None:
        exact = operator.exact(*arguments)
    else:
        exact = operator.eager(*widen(arguments))
    results = [own_tensor(tensor.detach(), arguments) for tensor in tensors_in(exact)]
    if not results:
        raise ValueError(f"the reference of {operator.name} has no tensor in its result")
    sizes = operator.sizes(*arguments) if operator.sizes is not None else ()
    return Reference(results, before, sizes=list(tensors_in(sizes)))


def with_types(reference: Reference, operator: Operator, arguments: Arguments) -> Reference:
    """The reference with types of the eager form's results, found without computing any."""
    try:
        made = operator.eager(*map_tensors(arguments, lambda tensor: tensor.to("meta")))
    except Exception:  # it looks at values
        return reference
    return replace(reference, dtypes=[tensor.dtype for tensor in tensors_in(made)])


@dataclass(frozen=True)
class Judgement:
    """How far results are from the reference; the worst of several."""

    problem: str = ""
    error: float | None = None
    """Relative norm."""
    share: float | None = None
    """Largest error of an element over what it may be."""


class Judge:
    """Judges results of one operator for one set of arguments."""

    def __init__(
        self,
        operator: Operator,
        arguments: Arguments,
        reference: Reference,
        intermediates: Sequence[torch.dtype],
    ) -> None:
        self._results = reference.results
        self._dtypes = reference.dtypes
        self._sizes = reference.sizes or [None] * len(reference.results)
        cut_steps = operator.cut_steps(*arguments) * any(one.is_cuda for one in reference.results)
        length = max(1, operator.reduction_length(*arguments))
        self._budget = partial(
            Budget, reduction_length=length, intermediates=tuple(intermediates), cut_steps=cut_steps
        )

    def judge(self, returned: Any) -> Judgement:
        """Compare what was returned; more tensors than the reference has are not looked at."""
        found = list(tensors_in(returned))
        if len(found) < len(self._results):
            return Judgement(f"{len(found)} tensors returned, expected {len(self._results)}")
        problem = self._wrong_form(found)
        if problem:
            return Judgement(problem)
        try:
            return _worst([self._measure(*pair) for pair in zip(found, self._results, self._sizes)])
        except (AccuracyError, TypeError) as error:
            return Judgement(str(error))

    def _wrong_form(self, found: Sequence[torch.Tensor]) -> str:
        """Why results cannot be what was asked for, before any of their values is looked at."""
        for position, (actual, exact) in enumerate(zip(found, self._results)):
            if actual.device.type != exact.device.type:
                return f"result {position} is on {actual.device.type}, not {exact.device.type}"
        for position, (actual, dtype) in enumerate(zip(found, self._dtypes)):
            both_float = actual.dtype.is_floating_point and dtype.is_floating_point
            # With fewer digits, its own rounding would excuse errors that are none of it.
            if both_float and torch.finfo(actual.dtype).eps > torch.finfo(dtype).eps:
                return f"result {position} is {actual.dtype}, narrower than eager's {dtype}"
        return ""

    def _measure(
        self, actual: torch.Tensor, exact: torch.Tensor, sizes: torch.Tensor | None
    ) -> ErrorReport:
        budget = self._budget(actual.dtype)
        try:
            return measure_by(budget, actual, exact, sizes)
        except torch.OutOfMemoryError:
            # Comparing takes several times the memory of the result, in float64.
            torch.cuda.empty_cache()
            return measure_by(budget, *map_tensors((actual, exact, sizes), torch.Tensor.cpu))


def _worst(reports: list[ErrorReport]) -> Judgement:
    wrong = [
        f"result {position}: {'; '.join(map(str.strip, str(report).splitlines()))}"
        for position, report in enumerate(reports)
        if not report.is_within_budget
    ]
    error = max(report.relative_norm for report in reports)
    return Judgement("; ".join(wrong), error, max(map(_share, reports)))


def _share(report: ErrorReport) -> float:
    error = abs(report.worst_actual - report.worst_reference)
    if report.num_beyond == 0 and report.worst_allowed == 0.0:
        return 0.0
    return error / report.worst_allowed if report.worst_allowed else float("inf")


def find_operator(job: Job) -> Operator:
    """The operator of a job."""
    return next(item for item in load_suite(job.suite).operators if item.name == job.operator)


def make_arguments(operator: Operator, job: Job) -> Arguments:
    """The arguments of a job, on its device and in its type."""
    chosen = operator.inputs_on(job.device)[job.input_id]
    made: Any = chosen.make(torch.device(job.device), getattr(torch, job.dtype))
    if not isinstance(made, (tuple, list)):
        raise TypeError(
            f"make() of input {chosen.label} returned {type(made).__name__}, expected a tuple"
        )
    return tuple(cast("Arguments", made))


def total_gb(device: torch.device) -> float:
    """Memory of a device; that of the machine for the CPU."""
    if device.type != "cpu":
        return torch.cuda.get_device_properties(device).total_memory / GB
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GB


def limit_memory(device: torch.device, limit_gb: float) -> None:
    """Limit what this process may have on the CPU; 0: most of the machine's.

    Drivers of GPUs reserve more than there is, so processes that use one are left alone.
    """
    limit = limit_gb or SHARE * total_gb(device) if device.type == "cpu" else float("inf")
    if limit == float("inf"):
        return
    with suppress(OSError, ValueError, OverflowError):
        resource.setrlimit(resource.RLIMIT_DATA, (int(limit * GB), int(limit * GB)))
