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
from typing import Annotated, Any

import torch
import typer

from tilesmith.bench.case import DEFAULT_SUITE, Input, Operator, PlanError, Suite, is_dotted_name
from tilesmith.bench.implementations import Implementation, implementations_of, plugin_name
from tilesmith.bench.row import Owner
from tilesmith.lab.workload.argument_text import default_device, find_dtype

METRICS = ("latency", "speedup", "tflops", "gbps", "accuracy", "compile_time", "tune_time")
DTYPES = ("bf16", "fp16", "fp32", "fp64", "bfloat16", "float16", "float32", "float64")


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
        raise PlanError(f"{text}: expected M/N with 1 <= M <= N, such as 1/4")

    def positions(self, total: int) -> range:
        """Its part of so many inputs; the first parts take what is left over."""
        size, rest = divmod(total, self.count)
        start = (self.number - 1) * size + min(self.number - 1, rest)
        return range(start, start + size + (self.number <= rest))


def _words(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if text and not words:
        raise PlanError(f"{text!r}: expected names with commas between them")
    return words


def _numbers(text: str) -> tuple[int, ...]:
    for word in _words(text):
        if not (word.isascii() and word.isdecimal()):
            raise PlanError(f"{text}: {word} is no number; expected such as 0,3")
    return tuple(map(int, _words(text)))


def paths(text: list[str]) -> tuple[Path, ...]:
    """Of files, one for each time that an option was given."""
    return tuple(map(Path, text))


def _listed(text: list[str]) -> tuple[str, ...]:
    return tuple(text)


def _flag(name: str, words: str, **rest: Any) -> Any:
    """An option of the command line; its words say what the default is."""
    return typer.Option(name, help=words, show_default=False, **rest)


Names = tuple[str, ...]
_IMPL = "one more: module:function or operator=module:function; may be repeated"
_ONLY_WHEN_RESUMED = "goes with --resume --out FILE"
_METRICS = f"what is shown; default: {', '.join(METRICS)}"


@dataclass(frozen=True)
class Options:
    """Every option of ``tilesmith bench`` that decides what runs and how; checked when made.

    With a function beside it, an option is text that the function reads.
    """

    kernels: Annotated[Names, _flag("--kernel", "operators: gemm,rms_*; default: all"), _words] = ()
    shard: Annotated[
        Shard | None, _flag("--input-shard", "M/N: the M-th of N parts of the inputs"), Shard.parse
    ] = None
    num_inputs: Annotated[int | None, _flag("--num-inputs", "at most so many inputs", min=1)] = None
    input_ids: Annotated[
        tuple[int, ...],
        _flag("--input-id", "numbers of inputs: 0,3; one with --num-inputs is the first"),
        _numbers,
    ] = ()
    only: Annotated[
        Names, _flag("--only", "implementations, or patterns: tilesmith*,eager"), _words
    ] = ()
    impls: Annotated[Names, _flag("--impl", _IMPL), _listed] = ()
    metrics: Annotated[Names, _flag("--metrics", _METRICS), _words] = METRICS
    """Without ``speedup`` the baseline is not timed."""
    regime: Annotated[str, _flag("--regime", "GPU caches before a call: cold (default), warm")] = (
        "cold"
    )
    use_graph: Annotated[
        bool,
        _flag("--cudagraph/--no-cudagraph", "time replays of CUDA graphs; default: where possible"),
    ] = True
    dtype: Annotated[str, _flag("--dtype", "bf16, fp16, fp32, fp64; default: each input's")] = ""
    backend: Annotated[str, _flag("--backend", "of our kernels; default: by device")] = ""
    device: Annotated[str, _flag("--device", "cpu or cuda; default: a GPU if there is one")] = ""
    tune_budget_s: Annotated[
        float, _flag("--tune-budget", "seconds of each search; default: 15", min=0.0)
    ] = 15.0
    timeout_s: Annotated[
        float, _flag("--timeout", "seconds for each row; default: 300", min=1.0)
    ] = 300.0
    """Searching not counted."""
    use_cache: Annotated[bool, _flag("--use-cache", "take tuned configs from the cache")] = False
    use_fresh_processes: Annotated[
        bool, _flag("--fresh-processes", "start each process from nothing")
    ] = False
    """Instead of as a fork of one that has imported everything and touched no device."""
    require_accuracy: Annotated[
        bool, _flag("--require-accuracy", "no reference is a failure of the harness")
    ] = False
    memory_limit_gb: Annotated[
        float,
        _flag("--memory-limit", "GB of a process on the CPU; 0: most of the machine", min=0.0),
    ] = 0.0
    suite: Annotated[
        str, _flag("--suite", f"module with a function suite(); default: {DEFAULT_SUITE}")
    ] = DEFAULT_SUITE
    path: Annotated[
        Path | None, _flag("--out", "file of rows; default bench-<date>-<time>.jsonl")
    ] = None
    resume: Annotated[bool, _flag("--resume", "go on with the file of --out")] = False
    retry_failed: Annotated[
        bool, _flag("--retry-failed", "with --resume: run again what failed")
    ] = False
    retry_disturbed: Annotated[
        bool, _flag("--retry-disturbed", "with --resume: run again what was disturbed")
    ] = False

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
            (self.retry_failed and not self.resume, f"--retry-failed {_ONLY_WHEN_RESUMED}"),
            (self.retry_disturbed and not self.resume, f"--retry-disturbed {_ONLY_WHEN_RESUMED}"),
        ):
            if is_wrong:
                raise PlanError(problem)

    @property
    def place(self) -> str:
        """The device that is meant."""
        return self.device or default_device()

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
    _check_only(suite, options, wanted)
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
    dtype = find_dtype(options.dtype) or chosen.dtype
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


def _check_only(suite: Suite, options: Options, wanted: dict[str, list[Implementation]]) -> None:
    """Each name has to mean something of the suite, and one of them something that is wanted."""
    entries = [entry for found in wanted.values() for entry in found]
    known = list(dict.fromkeys(entry.name for entry in entries))
    others = (implementations_of(one, options.impls) for one in suite.operators)
    everywhere = [entry for found in others for entry in found]
    is_any = any(entry.answers_to(name) for name in options.only for entry in entries)
    for name in options.only:
        if not any(entry.answers_to(name) for entry in (everywhere if is_any else entries)):
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
