"""Everything worth knowing from one GPU machine in one go, logs to a directory, a summary last.

    python3 benchmarks/gpu_report.py --out logs [--skip tests]

Needs torch and triton only. Steps: the environment, tests/device (with pytest, or the plain runner
where it is missing), the default-config benchmark, compiler costs, the demo.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TAIL_LINES = 25
JOBS = 8
ENVIRONMENT_SCRIPT = """
import importlib.util, platform, torch, triton
print("python", platform.python_version(), "torch", torch.__version__, "triton", triton.__version__)
print("device", torch.cuda.get_device_name() if torch.cuda.is_available() else "none")
for name in ("pytest", "hypothesis", "rich", "numpy"):
    print(name, "there" if importlib.util.find_spec(name) else "missing")
"""


@dataclass(frozen=True)
class Step:
    """One command of the report."""

    name: str
    arguments: tuple[str, ...]
    timeout_s: float


@dataclass(frozen=True)
class StepResult:
    """How a step ended; ``status`` is None if it ran out of time."""

    step: Step
    status: int | None
    seconds: float
    log: Path


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def steps(out: Path) -> list[Step]:
    """The commands, in order of what one would miss most."""
    if is_installed("pytest"):
        options = ["-q", "-W", "default", "-p", "no:cacheprovider"]
        options += [f"-n{JOBS}"] if is_installed("xdist") else []
        checks = ("-m", "pytest", "tests/device", "tests/measure", *options)
    else:
        checks = ("-m", "benchmarks.plain_runner", "tests/device", f"--jobs={JOBS}")
    rows = str(out / "gpu_defaults.jsonl")
    costs = str(out / "frontend.jsonl")
    commands = [
        Step("environment", ("-c", ENVIRONMENT_SCRIPT), 60),
        Step("tests", checks, 420),
        Step("gpu_defaults", ("-m", "benchmarks.gpu_defaults", "--json", rows), 420),
        Step("frontend", ("-m", "benchmarks.frontend", "--json", costs), 60),
    ]
    if is_installed("rich"):
        commands.append(Step("demo", ("examples/demo.py",), 120))
    return commands


def wait_or_kill(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """Exit status, or None when time ran out and the process and its children were ended."""
    try:
        return process.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def run_step(step: Step, out: Path, time_left_s: float) -> StepResult:
    """Run one command with its output in a file; a failure does not stop the rest."""
    log = out / f"{step.name}.log"
    environment = {
        **os.environ,  # noqa: TID251 (passed on, not read)
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "PYTHONUNBUFFERED": "1",
    }
    start = time.monotonic()
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, *step.arguments],
            cwd=ROOT,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status = wait_or_kill(process, max(1.0, min(step.timeout_s, time_left_s)))
    return StepResult(step, status, time.monotonic() - start, log)


def show_tail(result: StepResult, num_lines: int) -> None:
    """The end of a step's log."""
    lines = result.log.read_text(errors="replace").splitlines()
    print(f"--- {result.step.name} ({result.log.name}, last {num_lines} lines)")
    print("\n".join(lines[-num_lines:]), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all steps; the exit status is 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory for logs and rows")
    parser.add_argument("--skip", nargs="*", default=[], help="names of steps to leave out")
    parser.add_argument("--tail", type=int, default=TAIL_LINES, help="lines of each log to show")
    parser.add_argument("--budget", type=float, default=570.0, help="seconds for everything")
    options = parser.parse_args(arguments)
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    results: list[StepResult] = []
    deadline = time.monotonic() + options.budget
    for step in steps(out):
        if step.name not in options.skip:
            results.append(run_step(step, out, deadline - time.monotonic()))
            show_tail(results[-1], options.tail)
    for result in results:
        status = "out of time" if result.status is None else f"exit {result.status}"
        print(f"{result.step.name:14} {status:12} {result.seconds:7.1f} s  {result.log.name}")
    return int(any(result.status != 0 for result in results))


if __name__ == "__main__":
    sys.exit(main())
