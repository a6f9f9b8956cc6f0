"""What the doctor is asked and what it finds: plain values, from options to the verdict.

``diagnose`` makes an Examination; ``explain`` takes it and adds findings and a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch

from tilesmith.interpreter.frame import PreparedFunction
from tilesmith.interpreter.observers import Sampling
from tilesmith.interpreter.run import Argument, run_prepared
from tilesmith.ir.function import Function
from tilesmith.jit.compiled_kernel import CompiledKernel
from tilesmith.numerics.oracle import OracleOptions, Reference
from tilesmith.numerics.reference_setup import copy_written, needs_all_programs, runtime_sizes
from tilesmith.schedule.config import Config

OURS = "kernel"
"""The name of the kernel among the implementations."""
AS_WRITTEN = "as written"
"""The name of the kernel's own IR, interpreted with the roundings that it asks for."""
AT_THE_END = 4.0
"""Ulps below the largest number of a type that may be rounded to infinity."""

Outputs = Mapping[str, torch.Tensor]
"""Results of one run by name: those of the reference."""


class CauseKind(str, Enum):
    """What a verdict can be."""

    RACE = "race"
    ROUNDING = "intermediate rounding"
    ORDER = "accumulation order"
    CANCELLATION = "catastrophic cancellation"
    BUG = "real bug"
    FINE = "all fine"
    """Differences are at most what types and lengths of sums justify: the tolerance is tight."""
    UNKNOWN = "unknown"
    """There is nothing to judge by."""


class Scope(str, Enum):
    """What a result is compared over."""

    REPEATS = "repeats"
    CONFIGS = "configs"
    BATCHES = "batch sizes"


@dataclass(frozen=True)
class DependedInput:
    """The part of an input that an element depends on."""

    text: str
    """As code spells it: ``x[3, :, 17]``."""
    values: str
    """The values if there are few, else how many and how large."""


@dataclass(frozen=True)
class WorstElement:
    """One of the elements that are furthest off."""

    index: tuple[int, ...]
    got: float
    expected: float
    """In fp64."""
    error_ulp: float
    inputs: tuple[DependedInput, ...] = ()


@dataclass(frozen=True)
class ErrorStatistics:
    """How far one output of one implementation is from the truth."""

    implementation: str
    output: str
    dtype: torch.dtype
    num_elements: int
    """Elements whose truth is known, all of which are compared."""
    max_ulp: float
    """Infinite where a NaN or infinity is wrong."""
    median_ulp: float
    p99_ulp: float
    max_abs: float
    relative_norm: float
    bias_ulp: float
    """Median of finite errors with their signs: far from zero where results are biased."""
    histogram: Mapping[int, int]
    """Elements by the power of two that their error in ulp is below; see ``histogram``."""
    worst: tuple[WorstElement, ...]
    fault: str = ""
    """Why it is wrong, by the standard derived from types and lengths of sums; empty if right."""

    @property
    def lost(self) -> WorstElement | None:
        """A NaN or infinity where the truth is a number that is not at the end of the type."""
        found = (w for w in self.worst if not math.isfinite(w.got) and w.error_ulp > AT_THE_END)
        return next(found, None)

    @property
    def is_right(self) -> bool:
        """Whether every element is within what types and lengths of sums justify."""
        return not self.fault and self.lost is None


@dataclass(frozen=True)
class Agreement:
    """Whether results of one implementation are the same bit for bit."""

    implementation: str
    over: Scope
    num_runs: int
    num_different: int = 0
    """Elements that differ between any run and the first, over all outputs."""
    num_elements: int = 0
    max_ulp: float = 0.0
    """The largest distance, in representable values."""
    first: str = ""
    """A differing element: ``out[3, 5]``."""
    labels: tuple[str, ...] = ()
    """What the runs were: configs, batch sizes."""
    skipped: str = ""
    """Why it could not be found out."""
    num_unwritten: int = 0
    """Of those that differ, elements that no program of the kernel writes."""

    @property
    def is_same(self) -> bool:
        """Whether all runs agree bit for bit."""
        return not self.skipped and self.num_different == 0


@dataclass(frozen=True)
class Sensitivity:
    """How much of the error goes away when one intermediate is not rounded."""

    variable: str
    """The user's name for it, or an empty string."""
    dtype: str
    """What it is rounded to."""
    location: str
    """The user's file and line."""
    line: str
    """The text of that line."""
    share: float
    """Of the mean square error against the truth: 1 if it is all of it, 0 if nothing changes."""
    output: str = ""


@dataclass(frozen=True)
class Finding:
    """One statement with its evidence."""

    kind: CauseKind
    text: str
    evidence: tuple[str, ...] = ()
    implementation: str = ""


@dataclass(frozen=True)
class Verdict:
    """What it comes down to."""

    kind: CauseKind
    text: str
    """In one or two sentences."""
    closest: str = ""
    """The implementation nearest to the truth."""
    tolerance: str = ""
    """What types and lengths of sums justify: ``atol=..., rtol=...`` per output."""


@dataclass(frozen=True)
class OutputPlace:
    """Where a run of any implementation has one output."""

    name: str
    result: int = -1
    """Position among the tensors returned; -1: it is an argument that is written."""
    argument: int = -1
    """Position among the tensors of the arguments."""


@dataclass(frozen=True)
class ErrorSources:
    """What the error of one tensor is made of, as root mean squares (relative to the truth's)."""

    output: str
    scale: float
    """Root mean square of the truth; the others are relative to it."""
    total: float
    """Of the kernel as it is written."""
    of_result: float
    """Rounding of the exact result to its type, which nothing can avoid."""
    of_sums: float
    """Order and type of sums, the rest being as written."""
    roundings: tuple[Sensitivity, ...] = ()
    """Intermediates, the most important first."""
    sums: tuple[Sensitivity, ...] = ()
    """Sums carried in narrow types or one after the other, the most important first."""

    @property
    def of_roundings(self) -> float:
        """What roundings of intermediates add, together."""
        share = min(1.0, sum(found.share for found in self.roundings))
        return self.total * share**0.5


@dataclass(frozen=True)
class DiagnosedCall:
    """A kernel on arguments, ready to be interpreted again in other ways."""

    name: str
    bound: CompiledKernel
    args: tuple[Any, ...]
    """All arguments, in their initial state."""
    function: Function
    arguments: Mapping[str, Argument]
    """Of the IR function, by parameter; tensors that are written are in their initial state."""
    sizes: Mapping[str, int]
    """Of blocks, for the interpreter."""
    oracle: OracleOptions
    launch_reference: Reference
    """By parameter of the IR function."""
    reference: Reference
    """By output: what the kernel's results should be, element by element where they are known."""
    is_reference_given: bool
    """Whether that is a function of the user's; if not, it is the kernel's own formula."""
    places: tuple[OutputPlace, ...]
    as_written: Outputs
    """What the kernel gives as it is written, where that is known."""

    def copies(self, *, is_wide: bool) -> dict[str, torch.Tensor]:
        """The tensors in memory that is written, as copies; floats as fp64 if wide."""
        return copy_written(self.function, self.arguments, is_wide=is_wide)

    def sampling(self) -> Sampling:
        """Chooses the programs of the reference."""
        is_whole = needs_all_programs(self.function)
        return Sampling(None if is_whole else self.oracle.max_programs, self.oracle.seed)

    def interpret(
        self,
        prepared: PreparedFunction,
        replaced: Mapping[str, torch.Tensor],
        sampling: Sampling,
        *,
        sizes: Mapping[str, int] | None = None,
        races: bool = False,
    ) -> None:
        """Run a form of the function with other tensors, and perhaps other sizes of blocks."""
        chosen = {**runtime_sizes(self.function, self.arguments), **self.sizes, **(sizes or {})}
        arguments = {**self.arguments, **replaced}
        with torch.no_grad():
            run_prepared(prepared, arguments, chosen, races=races, sampling=sampling)


@dataclass(frozen=True)
class Examination:
    """All measurements of one call, which the verdict is derived from."""

    subject: DiagnosedCall
    outputs: Mapping[str, Outputs]
    """Of the first run of each implementation, and of ``AS_WRITTEN``, by its name."""
    statistics: tuple[ErrorStatistics, ...]
    agreements: tuple[Agreement, ...]
    failures: Mapping[str, str]
    """Implementations that gave no results, and why."""
    wide: Mapping[str, Outputs] = field(default_factory=dict[str, Outputs])
    """What others that are wrong give from the arguments widened to fp64, where they can."""

    def statistics_of(self, implementation: str) -> tuple[ErrorStatistics, ...]:
        """Of all outputs of one implementation."""
        return tuple(s for s in self.statistics if s.implementation == implementation)

    def agreement(self, implementation: str, over: Scope) -> Agreement | None:
        """The one comparison, if it was made."""
        wanted = (implementation, over)
        return next((a for a in self.agreements if (a.implementation, a.over) == wanted), None)


@dataclass(frozen=True)
class DiagnoseOptions:
    """How much is measured.

    Attributes:
        repeats: runs of each implementation that must agree bit for bit.
        configs: configs whose results are compared; by default the decorator's and good ones.
        num_configs: how many good ones.
        check_batches: compare rows with the same rows of a smaller and a larger batch.
        num_worst: elements to show of each output of each implementation.
        inputs_time_limit_s: seconds to find out which inputs those depend on; 0: do not.
        reference: the same computation in fp64, from the arguments widened to fp64; by default
            the kernel itself with every float in fp64.
        max_programs: how many programs of the kernel to interpret; by default what is affordable.
        time_limit_s: seconds for the reference.
        explain: look for causes, not only for errors.
        seed: chooses the programs.
    """

    repeats: int = 5
    configs: Sequence[Config] = ()
    num_configs: int = 3
    check_batches: bool = True
    num_worst: int = 3
    inputs_time_limit_s: float = 5.0
    reference: Callable[..., Any] | None = None
    max_programs: int | None = None
    time_limit_s: float = 30.0
    explain: bool = True
    seed: int = 0


def choose_config(bound: CompiledKernel) -> Config:
    """The config whose tiles the reference starts from."""
    chosen = bound.configs[0] if bound.configs else bound.default_config()
    return bound.config_spec.normalize(chosen)
