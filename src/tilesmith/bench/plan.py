"""From what was asked for to a list of jobs: one for every implementation of every input.

Nothing is imported but the suite's definitions; what cannot run here is a job with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path

import torch

from tilesmith.bench.case import (
    DEFAULT_SUITE,
    Input,
    Operator,
    PlanError,
    Suite,
    is_dotted_name,
)
from tilesmith.bench.implementations import Implementation, implementations_of, plugin_name
from tilesmith.bench.row import Owner

METRICS = ("latency", "speedup", "tflops", "gbps", "accuracy", "compile_time", "tune_time")
RETRIES = {"retry_failed": "--retry-failed", "retry_disturbed": "--retry-disturbed"}
DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}


@dataclass(frozen=True)
class Shard:
    """One of several parts of a list of inputs; counts from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard that ``M/N`` names; raises PlanError."""
        number, slash, count = text.partition("/")
        if slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count):
            return cls(int(number), int(count))
        raise PlanError(f"--input-shard {text}: expected M/N with 1 <= M <= N, such as 1/4")

    def positions(self, total: int) -> range:
        """Its part of so many inputs; the first parts take what is left over."""
        size, rest = divmod(total, self.count)
        start = (self.number - 1) * size + min(self.number - 1, rest)
        return range(start, start + size + (self.number <= rest))


@dataclass(frozen=True)
class Options:
    """Every option of ``tilesmith bench`` that decides what runs and how; checked when made.

    Attributes:
        suite: module with a function ``suite()``.
        kernels: names of operators, or patterns; empty: all.
        shard: part of each operator's inputs.
        num_inputs: at most so many of them.
        input_ids: positions of inputs; one together with ``num_inputs`` is where to begin.
        only: names of implementations, or patterns; empty: all.
        impls: plug-ins, each as ``[operator=]module:function``.
        metrics: what is wanted; without ``speedup`` the baseline is not timed.
        regime: whether caches are ``cold`` or ``warm``.
        use_graph: time replays of CUDA graphs where they can be captured.
        dtype: element type; empty: that of each input.
        backend: of our kernels, as in settings; empty: by device.
        device: ``cpu`` or ``cuda``; empty: a GPU if there is one.
        tune_budget_s: of each search.
        timeout_s: for each implementation of each input, searching not counted.
        use_cache: take tuned configs from the user's cache instead of searching anew.
        use_fresh_processes: start each process from nothing instead of as a fork of one that has
            imported everything and touched no device.
        require_accuracy: a row without a reference is a failure of the harness.
        memory_limit_gb: of a process on the CPU; 0: most of the machine's.
        path: file of rows, as JSON lines; None: rows are only returned.
        resume: go on with that file.
        retry_failed: when going on, run again what failed.
        retry_disturbed: when going on, run again what others on the machine disturbed.
    """

    suite: str = DEFAULT_SUITE
    kernels: tuple[str, ...] = ()
    shard: Shard | None = None
    num_inputs: int | None = None
    input_ids: tuple[int, ...] = ()
    only: tuple[str, ...] = ()
    impls: tuple[str, ...] = ()
    metrics: tuple[str, ...] = METRICS
    regime: str = "cold"
    use_graph: bool = True
    dtype: str = ""
    backend: str = ""
    device: str = ""
    tune_budget_s: float = 15.0
    timeout_s: float = 300.0
    use_cache: bool = False
    use_fresh_processes: bool = False
    require_accuracy: bool = False
    memory_limit_gb: float = 0.0
    path: Path | None = None
    resume: bool = False
    retry_failed: bool = False
    retry_disturbed: bool = False

    def __post_init__(self) -> None:
        if not self.metrics:
            raise PlanError(f"--metrics: expected some of {', '.join(METRICS)}")
        for metric in self.metrics:
            _known("--metrics", metric, METRICS)
        _known("--regime", self.regime, ("cold", "warm"))
        _known("--device", self.device, ("", "cpu", "cuda"))
        _known("--dtype", self.dtype, ("", *DTYPES))
        _known("--backend", self.backend, ("", "auto", "triton", "cpu", "reference"))
        first = min(self.input_ids, default=0)
        is_none = self.num_inputs is not None and self.num_inputs < 1
        is_pathless = self.resume and self.path is None
        for is_wrong, problem in (
            (is_none, "--num-inputs must be at least 1"),
            (first < 0, f"--input-id {first}"),
            (not 0 < self.timeout_s < inf, "--timeout must be more than 0 seconds, and finite"),
            (not 0 <= self.tune_budget_s < inf, "--tune-budget must be 0 seconds or more, finite"),
            (not 0 <= self.memory_limit_gb < inf, "--memory-limit must be 0 GB or more, finite"),
            (is_pathless, "--resume needs the file to go on with; name it with --out"),
            *(
                (getattr(self, name) and not self.resume, f"{flag} goes with --resume --out FILE")
                for name, flag in RETRIES.items()
            ),
        ):
            if is_wrong:
                raise PlanError(problem)

    @property
    def place(self) -> str:
        """The device that is meant."""
        return self.device or ("cuda" if torch.cuda.is_available() else "cpu")

    def check_device(self) -> None:
        """PlanError if it is not there: a list can be made without it, but nothing can run."""
        if self.place == "cuda" and not torch.cuda.is_available():
            raise PlanError("--device cuda: PyTorch finds no GPU here; run with --device cpu")


@dataclass(frozen=True)
class Job:
    """One implementation of one input."""

    suite: str
    operator: str
    input_id: int
    input_label: str
    implementation: Implementation
    dtype: str
    """As torch prints it, without ``torch.``."""
    device: str
    problem: str = ""
    """Why it cannot run here at all; no failure of anyone."""

    @property
    def owner(self) -> Owner:
        """Whose implementation it is."""
        return self.implementation.owner

    @property
    def key(self) -> tuple[str, int, str, str, str]:
        """What its row is recognised by."""
        name = self.implementation.name
        return (self.operator, self.input_id, name, self.dtype, self.device)

    @property
    def input_key(self) -> tuple[str, int, str, str]:
        """What jobs with the same arguments share."""
        return (self.operator, self.input_id, self.dtype, self.device)


def make_plan(suite: Suite, options: Options) -> tuple[Job, ...]:
    """All jobs, operator by operator, input by input."""
    operators = choose_operators(suite, options.kernels)
    wanted = {operator.name: implementations_of(operator, options.impls) for operator in operators}
    _check_impls(suite, options.impls)
    _check_only(options.only, wanted)
    _check_ids(options, operators)
    return tuple(
        _make_job(operator, position, implementation, options)
        for operator in operators
        for position in choose_inputs(operator, options)
        for implementation in wanted[operator.name]
        if is_chosen(implementation, options.only)
    )


def choose_operators(suite: Suite, names: Sequence[str]) -> list[Operator]:
    """Those that were named, in the order of the suite."""
    known = [operator.name for operator in suite.operators]
    for name in names:
        if not any(fnmatchcase(other, name) for other in known):
            raise PlanError(f"--kernel {name}: {suggest(name, known)}")
    return [
        operator
        for operator in suite.operators
        if not names or any(fnmatchcase(operator.name, name) for name in names)
    ]


def choose_inputs(operator: Operator, options: Options) -> Sequence[int]:
    """Positions of the inputs that were asked for."""
    total = len(operator.inputs_on(options.place))
    ids = tuple(dict.fromkeys(options.input_ids))
    if len(ids) == 1 and options.num_inputs is not None:
        ids = tuple(range(ids[0], total))
    positions = options.shard.positions(total) if options.shard is not None else range(total)
    chosen = [position for position in ids if position in positions] if ids else positions
    return chosen[: options.num_inputs]


def is_chosen(implementation: Implementation, only: Sequence[str]) -> bool:
    """Whether an implementation was asked for; one that is not installed only by its name."""
    if not only:
        return implementation.is_installed
    return any(map(implementation.answers_to, only))


def _make_job(
    operator: Operator, position: int, implementation: Implementation, options: Options
) -> Job:
    chosen = operator.inputs_on(options.place)[position]
    dtype = DTYPES[options.dtype] if options.dtype else chosen.dtype
    return Job(
        options.suite,
        operator.name,
        position,
        chosen.label,
        implementation,
        str(dtype).removeprefix("torch."),
        options.place,
        _why_not(operator, chosen, dtype, options.place)
        or ("" if implementation.is_installed else f"{implementation.name} is not installed"),
    )


def _why_not(operator: Operator, chosen: Input, dtype: torch.dtype, device: str) -> str:
    if device not in operator.devices:
        return f"{operator.name} is not for {device}"
    if dtype not in (*operator.dtypes, chosen.dtype):
        return f"{operator.name} is not for {dtype}"
    return ""


def _check_only(only: Sequence[str], wanted: dict[str, list[Implementation]]) -> None:
    entries = [entry for found in wanted.values() for entry in found]
    known = list(dict.fromkeys(entry.name for entry in entries))
    for name in only:
        if not any(entry.answers_to(name) for entry in entries):
            raise PlanError(f"--only {name}: {suggest(name, known)}")


def _check_ids(options: Options, operators: Sequence[Operator]) -> None:
    ids = options.input_ids
    count = max((len(operator.inputs_on(options.place)) for operator in operators), default=0)
    if max(ids, default=0) >= max(count, 1):
        raise PlanError(f"--input-id {max(ids)}: there are {count} inputs, counted from 0")


def _check_impls(suite: Suite, impls: Sequence[str]) -> None:
    known = [operator.name for operator in suite.operators]
    names: dict[str, str] = {}
    for text in impls:
        owner, sign, target = text.rpartition("=")
        module, _, function = target.partition(":")
        if not is_dotted_name(module) or not is_dotted_name(function):
            raise PlanError(f"--impl {text}: expected [operator=]module:function")
        if sign and owner not in known:
            raise PlanError(f"--impl {text}: {suggest(owner, known)}")
        name = owner + sign + plugin_name(target)
        if names.setdefault(name, target) != target:
            raise PlanError(
                f"--impl {text}: {names[name]} is called {plugin_name(target)} too; rename one"
            )


def _known(option: str, value: str, values: Sequence[str]) -> None:
    if value not in values:
        raise PlanError(f"{option} {value}: {suggest(value, values)}")


def suggest(name: str, known: Sequence[str]) -> str:
    """What may have been meant instead of a name that is not known.

    Example:
        >>> suggest("gem", ["gemm", "add"]), suggest("x", ["gemm", "add"])
        ('did you mean gemm?', 'there are gemm, add')
    """
    near = get_close_matches(name, known, n=3, cutoff=0.7)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there are {', '.join(filter(None, known)) or 'none'}"
