"""What supervisor and worker agree on: requests, progress, and rows of jobs that did not end well.

A worker leaves a small file behind that says what it was doing when it died. Rows also say what
their figures depend on besides the code: versions, device, threads.
"""

from __future__ import annotations

import json
import os
import platform
import re
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from time import monotonic

import torch

from tilesmith.bench.plan import Job, Options
from tilesmith.bench.row import Cause, Row, Status
from tilesmith.lab.failures import classify
from tilesmith.lab.processes.channel import ChildDied, ChildError, ChildTimeout
from tilesmith.runtime.device import describe_device, target_of
from tilesmith.store.lookup import installed_versions
from tilesmith.store.outcome import Verdict

PACKAGES = ("tilesmith", "triton", "helion")
DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/sys/module/amdgpu/version"))
MAX_FRAMES = 4
"""Of a traceback, in the reason of a row."""
HERE = Path(__file__).parent
HARNESS = (HERE, HERE.parent / "measure")


class Stage(str, Enum):
    """What a worker does; who is to blame for a death depends on it."""

    START = "starting"
    PREPARE = "making the arguments"
    BUILD = "building it and calling it for the first time"
    TUNE = "searching for a config"
    CALL = "calling it a second time"
    JUDGE = "judging its results"
    BASELINE = "calling the eager form"
    MEASURE = "timing"


@dataclass(frozen=True)
class Progress:
    """The stage that was begun last, the row before it, and when it was begun."""

    stage: Stage
    row: Row
    began: float = field(default_factory=monotonic)
    """By ``time.monotonic``, whose clock is the machine's."""

    def save(self, path: Path) -> None:
        """Leave it; a reader never sees half of it."""
        partial = path.with_suffix(".partial")
        left = {"stage": self.stage.value, "row": self.row.to_json(), "began": self.began}
        partial.write_text(json.dumps(left))
        partial.replace(path)

    @classmethod
    def load(cls, path: Path, row: Row, began: float) -> Progress:
        """What was left; where nothing was, the given row before anything was done."""
        try:
            found = json.loads(path.read_text())
            return cls(Stage(found["stage"]), Row.from_json(found["row"]), float(found["began"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls(Stage.START, row, began)


def blank_row(job: Job) -> Row:
    """The row of a job before anything is known."""
    place = (job.operator, job.input_id, job.input_label, job.implementation.name)
    return Row(*place, job.owner, Status.OK, job.device, job.dtype)


def unavailable(row: Row, reason: str, cause: Cause = Cause.NOT_SUPPORTED) -> Row:
    """It cannot run here, and nobody has failed."""
    return replace(row, status=Status.UNAVAILABLE, cause=cause, reason=reason)


def harness_failed(row: Row, reason: str, cause: Cause = Cause.EXCEPTION) -> Row:
    """Inputs, reference or worker."""
    return replace(row, status=Status.HARNESS_FAILED, cause=cause, reason=reason)


def raised(row: Row, error: BaseException) -> Row:
    """The implementation raised; the reason ends with the innermost frames outside this folder."""
    verdict, reason = classify(error, Verdict.RUN_ERROR)
    cause = Cause.OUT_OF_MEMORY if verdict is Verdict.OUT_OF_MEMORY else Cause.EXCEPTION
    if isinstance(error, SystemExit):
        reason = f"it called sys.exit({error.code!r})"
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if Path(frame.filename).parent != HERE]
    for frame in outside[-MAX_FRAMES:]:
        place = f"{frame.filename}:{frame.lineno} in {frame.name}"
        reason += f"\n  {place}: {frame.line or ''}".rstrip()
    return replace(row, status=Status.FAILED, cause=cause, reason=reason)


def raised_while_timing(row: Row, error: BaseException) -> Row:
    """As ``raised``, unless the error is one of the timer's own lines."""
    frames = traceback.extract_tb(error.__traceback__)
    is_ours = bool(frames) and Path(frames[-1].filename).parent in HARNESS
    if is_ours and isinstance(error, Exception) and not isinstance(error, MemoryError):
        last = frames[-1]
        place = f"{Path(last.filename).name}:{last.lineno} in {last.name}"
        return harness_failed(row, f"timing failed at {place}: {type(error).__name__}: {error}")
    return raised(row, error)


def died(progress: Progress, failure: ChildError, moment: float) -> Row:
    """The process crashed or hung; the reason says while doing what, and ends with its output."""
    stage, seconds = progress.stage, max(0.0, moment - progress.began)
    first, *rest = str(failure).splitlines()
    is_hang = isinstance(failure, ChildTimeout)
    # An implementation has no part in these; memory that it spoiled may crash a judge.
    is_harness = stage in (Stage.START, Stage.PREPARE) or (is_hang and stage is Stage.JUDGE)
    cause = Cause.HANG if is_hang else Cause.CRASH
    if isinstance(failure, ChildDied) and failure.signal_name == "SIGKILL" and not failure.note:
        cause = Cause.OUT_OF_MEMORY
    return replace(
        progress.row,
        status=Status.HARNESS_FAILED if is_harness else Status.FAILED,
        cause=cause,
        reason="\n".join([f"{first} while {stage.value} ({seconds:.1f} s)", *rest]),
        stage=stage.value,
        stage_s=seconds,
    )


@dataclass(frozen=True)
class Measure:
    """A request for a row."""

    job: Job
    options: Options
    progress: Path
    reference: Path | None
    with_baseline: bool


@dataclass(frozen=True)
class MakeReference:
    """A request for a reference, to be saved; the results too if they cannot be made again."""

    job: Job
    path: Path
    can_make_again: bool


def software() -> dict[str, str]:
    """Versions; nothing is asked of a device."""
    found = {"torch": str(torch.__version__), "python": platform.python_version()}
    return found | installed_versions(PACKAGES)


def environment(device: torch.device) -> dict[str, str]:
    """Versions, the device in words, and what its limits follow from."""
    target = target_of(device)
    limits = {"target": str(target), "cores": str(target.num_sms)}
    if target.has_matrix_tiles:
        limits["matrix tiles"] = "amx-bf16"
    if device.type == "cpu":
        # Times on a machine that does other things say little.
        limits["load"] = f"{os.getloadavg()[0]:.1f}"
    driver = "" if device.type == "cpu" else driver_version()
    if driver:
        limits["driver"] = driver
    return {"device": describe_device(target), **limits, **software()}


def driver_version(places: Iterable[Path] = DRIVERS) -> str:
    """The version of the kernel's driver for GPUs; empty where the system does not tell."""
    for place in places:
        with suppress(OSError):
            found = re.search(r"(?:^|\s)(\d+(?:\.\d+)+)\b", place.read_text())
            if found is not None:
                return found[1]
    return ""
