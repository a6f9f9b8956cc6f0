"""What the tuner asks of its child processes, and what they answer: plain, picklable records.

The builder compiles artifacts; the runner holds a workload on its device, checks candidates against
the reference and times them. A child that cannot answer is a fact too: the parent then makes the
verdict CRASHED or HUNG.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tilesmith.artifacts import Artifact
from tilesmith.ir.function import Function
from tilesmith.lab.workload.binding import Binding
from tilesmith.store.outcome import UNKNOWN_RESOURCES, Resources, Verdict


@dataclass(frozen=True)
class Program:
    """One candidate, ready to be built and launched."""

    key: str
    """Names the candidate in later jobs."""
    artifact: Artifact
    binding: Binding
    launch: Callable[[Artifact], Callable[..., None]] | None = None
    """The launcher that its backend has itself, if so: a function of a module, pickled by name."""


@dataclass(frozen=True)
class BuildReply:
    """What became of the build of one program."""

    verdict: Verdict
    """OK, BUILD_ERROR, OUT_OF_RESOURCES; the parent's: BUILD_TIMEOUT, CRASHED."""
    reason: str = ""
    seconds: float = 0.0
    resources: Resources = UNKNOWN_RESOURCES


@dataclass(frozen=True)
class ReferenceJob:
    """How the runner finds out what is right.

    The function is interpreted twice with the same tiles: as written, and with every float in
    fp64. The second is the truth, the first shows how much error its roundings justify.
    """

    function: Function
    sizes: tuple[tuple[str, int], ...]
    """Block sizes to interpret it with."""
    binding: Binding
    max_programs: int
    """Interpret at most that many programs of each grid, chosen by ``seed`` (first and last among
    them), and judge only what those write; functions with atomics need all."""
    seed: int = 0


@dataclass(frozen=True)
class PrepareJob:
    """Load a workload onto the device and work out the reference; the first job of a runner."""

    workload: Path
    device: str
    reference: ReferenceJob | None
    """None: candidates are judged by ``expected``, or else by the first one that runs."""
    expected: Path | None = None
    """Results of the user's baseline function, as ``save_expected`` writes them."""
    is_checked: bool = True
    """False: results are not judged at all; two runs must still agree."""
    atol: float | None = None
    rtol: float | None = None
    """The user's own tolerance."""
    is_float_order_free: bool = False
    """Whether float atomics make the last bits depend on the order of programs."""
    has_deterministic_results: bool = False
    """Whether the user insists on equal bits all the same."""
    time_limit_s: float = 30.0
    """For the reference; beyond it candidates are judged against the first one that runs."""
    num_threads: int = 0
    """Of kernels on a CPU; 0: as many as torch uses."""


@dataclass(frozen=True)
class PrepareReply:
    """What candidates will be judged by."""

    judge: str
    """In words: "fp64 reference", "fp64 reference, 8 of 1024 programs", "first candidate"."""
    reason: str = ""
    """Why it is not the fp64 reference, if so."""
    loading_s: float = 0.0
    reference_s: float = 0.0


@dataclass(frozen=True)
class CheckJob:
    """Build (or fetch) a program, run it from the workload's initial state, judge the result."""

    program: Program
    reference: ReferenceJob | None = None
    """Its own, where host code makes something else of each Config; else that of the workload."""


@dataclass(frozen=True)
class CheckReply:
    """The verdict: OK or what is wrong."""

    verdict: Verdict
    reason: str = ""
    first_ms: float = 0.0
    """A single, cold, rough time: enough to recognise a hopeless candidate."""
    resources: Resources = UNKNOWN_RESOURCES


@dataclass(frozen=True)
class TimeJob:
    """Time programs that were checked, with cold caches: every round runs each once."""

    keys: tuple[str, ...]
    """A key may occur twice: the duplicate is the control that shows the noise."""
    repeats: int
    time_limit_s: float = 10.0
    """Rounds that would end later are left out, all but the first."""


@dataclass(frozen=True)
class TimeReply:
    """Samples in milliseconds, in the order of the job's keys."""

    samples_ms: tuple[tuple[float, ...], ...]
    is_disturbed: bool = False
    """Whether others had the cores in half of a program's samples; on GPUs nobody can tell."""


@dataclass(frozen=True)
class ForgetJob:
    """Drop programs that will not be asked for again."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class ReleaseJob:
    """Drop the workload and all that belongs to it; the next job must be a PrepareJob."""


RunnerJob = ReleaseJob | PrepareJob | CheckJob | TimeJob | ForgetJob
