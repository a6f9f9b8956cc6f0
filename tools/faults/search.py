"""One small search in a process of its own, and what it leaves behind.

The process is a fork of this one, which has torch already. It notes every measurement and winner
that the store has said to keep: what was noted must be found by whoever comes next.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.lab.processes.living import eventually, is_alive
from tests.tune.kernels import config, make_add
from tilesmith.jit.tuner import TuneRequest
from tilesmith.lab.processes import build_pool
from tilesmith.lab.workload import capture
from tilesmith.store.journal import Journal
from tilesmith.store.outcome import Outcome
from tilesmith.store.winners import Winner, Winners, read_text
from tilesmith.tune import places, tuner, workspace
from tilesmith.tune.autotune import Autotuner
from tilesmith.tune.listener import History
from tools.faults import light_runner, light_server
from tools.faults.points import Plan, Points

SIZES = (1024, 256, 64)
FAMILY = "FAULT_FAMILY"
"""The variable by which all processes of a search are found."""
GRACE_S = 60.0
"""For a whole process besides its budget, on a machine that has much else to do."""
X, Y = torch.arange(1000.0), torch.arange(1000.0).flip(0) / 3
Body = Callable[["Spot"], dict[str, Any]]


@dataclass
class Spot:
    """The folders of one scenario, and what happened in them."""

    root: Path
    sizes: tuple[int, ...] = SIZES
    runner: str = light_runner.MODULE
    """The module of the runner; one that is not the light one also builds."""
    temporary: Path | None = None
    """Another place for temporary files."""
    cache: Path | None = None
    """Another place for the cache."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    environment: dict[str, str] = field(default_factory=dict[str, str])
    budget_s: float = 60.0
    family: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        self.cache = self.cache or self.root / "cache"
        self.temporary = self.temporary or self.root / "tmp"
        for folder in (self.root, self.temporary):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def notes(self) -> Path:
        """What the store said it keeps, one JSON list a line."""
        return self.root / "kept.jsonl"

    @property
    def log(self) -> str:
        """What all its processes wrote to their standard streams."""
        path = self.root / "log"
        return path.read_text(errors="replace") if path.exists() else ""


@dataclass(frozen=True)
class Ended:
    """How a process ended; ``report`` is what its body returned, None if it did not get there."""

    code: int
    report: dict[str, Any] | None


def in_fork(spot: Spot, body: Body, plan: Plan | None = None) -> Ended:
    """Run a body in a fork of this process, which must have one thread."""
    path = spot.root / f"report-{secrets.token_hex(4)}.json"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _settle(spot, plan)
            path.write_text(json.dumps(body(spot)))
            build_pool.idle_processes().close()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    code = _await_end(pid, spot.budget_s + GRACE_S)
    return Ended(code, json.loads(path.read_text()) if code == 0 else None)


def _await_end(pid: int, limit_s: float) -> int:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 124


def _settle(spot: Spot, plan: Plan | None) -> None:
    """Make the fork a process of this spot."""
    os.setsid()
    handle = os.open(spot.root / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    own = {"TILESMITH_CACHE_DIR": str(spot.cache), "TMPDIR": str(spot.temporary)}
    os.environ.update({**own, FAMILY: spot.family, **spot.environment})
    tempfile.tempdir = None
    capture._MEMORY_DISK = spot.temporary  # type: ignore[attr-defined]
    tuner.MAX_FINALS_S = 0.05
    # What is stored is looked at, whatever else runs here.
    workspace.Workspace.disturbed = 0.0  # type: ignore[assignment]
    build_pool.SERVER = light_server.MODULE
    places.RUNNER_MODULE = spot.runner
    if spot.runner != light_runner.MODULE:
        places.BUILD_FUNCTION = f"{spot.runner}:build"
    _note_what_is_kept(spot.notes)
    if plan is not None:
        os.environ.update(plan.environment())
        Points(plan, "parent").watch()


def _note_what_is_kept(path: Path) -> None:
    append, commit = Journal.append, Winners.commit
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def noted_append(journal: Journal, outcome: Outcome) -> None:
        append(journal, outcome)
        if not journal.is_broken:
            block = outcome.config.block_sizes[0]
            note = ["measurement", block, outcome.verdict.value]
            os.write(handle, f"{json.dumps(note)}\n".encode())

    def noted_commit(winners: Winners, *args: Any, **keywords: Any) -> Winner:
        winner = commit(winners, *args, **keywords)
        if winners.path(winner.key.kernel).exists():
            os.write(handle, f"{json.dumps(['winner', winner.digest, ''])}\n".encode())
        return winner

    Journal.append, Winners.commit = noted_append, noted_commit  # type: ignore[method-assign]


def search(spot: Spot) -> dict[str, Any]:
    """Search given block sizes, call the kernel, and say how both went."""
    history, kernel = History(), make_add()
    configs = [config(size) for size in spot.sizes]
    quiet = {"autotune_log_level": 50, "autotune_progress_bar": False}
    keywords = {"method": "FiniteSearch", "configs": configs, **quiet, **spot.settings}
    bound = kernel.bind((X, Y))
    found = Autotuner([history]).tune(bound, (X, Y), TuneRequest(True, spot.budget_s, keywords))
    bound.install(found)
    result = history.result
    assert result is not None
    outcomes = [trial.outcome for trial in history.trials]
    return {
        "is_right": bool(torch.equal(kernel(X, Y), X + Y)),
        "is_measured": result.is_measured,
        "stop": result.stop.value,
        "problem": result.problem,
        "recalled": result.num_recalled,
        "verdicts": {str(o.config.block_sizes[0]): o.verdict.value for o in outcomes},
        "reasons": {str(o.config.block_sizes[0]): o.reason for o in outcomes},
    }


def call(spot: Spot) -> dict[str, Any]:
    """The first call of a kernel that nothing was kept of."""
    return {"is_right": bool(torch.equal(make_add()(X, Y), X + Y))}


def find_stored(spot: Spot) -> dict[str, Any]:
    """Whether an ordinary first call finds what was stored for just these configs."""
    bound = make_add().bind((X, Y))
    winners = Winners(Path(os.environ["TILESMITH_CACHE_DIR"]))
    found = winners.entries(bound.definition.name)
    return {"is_stored": any(winner.config.block_sizes[0] in spot.sizes for winner in found)}


def find_losses(spot: Spot) -> list[str]:
    """What was noted as kept and is not there any more."""
    assert spot.cache is not None
    noted = [json.loads(line) for line in _lines(spot.notes)]
    there: set[tuple[Any, ...]] = set()
    for path in (spot.cache / "tuning" / "journal").glob("*.jsonl"):
        for line in _lines(path):
            with suppress(ValueError, KeyError, TypeError):
                found = json.loads(line)
                there.add(("measurement", found["config"]["block_sizes"][0], found["verdict"]))
    for path in (spot.cache / "tuning" / "winners").glob("*.json"):
        there |= {("winner", digest, "") for digest in read_text(path.read_text(), path)}
    return [f"lost: {note}" for note in noted if tuple(note) not in there]


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else []


def find_living(spot: Spot) -> list[int]:
    """Processes of a spot that still run."""
    mark = f"{FAMILY}={spot.family}".encode()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes() and is_alive(int(entry.name)):
                    found.append(int(entry.name))
    return found


def find_litter(spot: Spot) -> list[str]:
    """Temporary files and halves of files that nobody will come back for."""
    assert spot.cache is not None
    assert spot.temporary is not None
    left = [path for path in spot.temporary.rglob("*") if "tilesmith" in path.name]
    # Halves of objects are files of their folder, which is cut to its limit.
    halves = [path for path in (spot.cache / "tuning").rglob(".*.*-*") if path.is_file()]
    return [f"left behind: {path.relative_to(spot.root)}" for path in (*left, *halves)]


def all_gone(spot: Spot) -> list[str]:
    """Complains of processes that do not end."""
    if eventually(lambda: not find_living(spot)):
        return []
    return [f"process {pid} is left" for pid in find_living(spot)]
