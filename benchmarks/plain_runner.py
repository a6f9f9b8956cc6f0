"""Run test files without pytest, for machines that lack it: functions, parameters, nothing else.

    python -m benchmarks.plain_runner tests/device [--jobs 8] [--only matmul]

A stand-in for the module pytest gives test files what they use of it (marks, `raises`). Tests run
in several processes; one that crashes, hangs or breaks the device fails and the rest go on.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import json
import re
import subprocess
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BROKEN_DEVICE = 3
"""Exit status of a worker whose device no longer answers; the parent starts another."""
DEVICE_ERRORS = (
    "CUDA error",
    "an illegal memory access",
    "device-side assert",
    "CUDA driver error",
)


@dataclass(frozen=True)
class Result:
    """One test; ``problem`` is empty when it passed."""

    name: str
    problem: str = ""


class Marks:
    """Stands in for ``pytest.mark``: keeps parameters on the function, ignores the other marks."""

    def parametrize(self, names: str | Sequence[str], values: Iterable[Any], **_: Any) -> Any:
        """Remember one axis of parameters."""
        keys = names.replace(" ", "").split(",") if isinstance(names, str) else list(names)
        rows = [value if len(keys) > 1 else (value,) for value in values]
        axis = [dict(zip(keys, row)) for row in rows]

        def decorate(function: Any) -> Any:
            function.plain_axes = [*getattr(function, "plain_axes", []), axis]
            return function

        return decorate

    def __getattr__(self, name: str) -> Any:
        return lambda function: function


@contextmanager
def raises(expected: type[BaseException], match: str = "") -> Iterator[None]:
    """Stands in for ``pytest.raises``."""
    try:
        yield
    except expected as error:
        if not re.search(match, str(error)):
            raise AssertionError(f"{error} does not match {match}") from error
    else:
        raise AssertionError(f"did not raise {expected.__name__}")


def install_stand_in() -> None:
    """Make ``import pytest`` work where there is none."""
    if importlib.util.find_spec("pytest") is None:
        stand_in = types.ModuleType("pytest")
        stand_in.__dict__.update(mark=Marks(), raises=raises)
        sys.modules["pytest"] = stand_in


def axes_of(function: Any) -> list[list[dict[str, Any]]]:
    """Parameter axes, recorded by the stand-in or by pytest itself."""
    if hasattr(function, "plain_axes"):
        return function.plain_axes
    marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"]
    recorded = types.SimpleNamespace()
    for mark in marks:
        Marks().parametrize(*mark.args)(recorded)
    return getattr(recorded, "plain_axes", [])


def tests_in(path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names and bodies of the tests of one file, one per combination of parameters."""
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    for name, function in vars(module).items():
        if not name.startswith("test_") or not callable(function):
            continue
        for chosen in itertools.product(*axes_of(function)):
            arguments = {key: value for part in chosen for key, value in part.items()}
            label = "-".join(str(value) for value in arguments.values())
            yield (
                f"{path.stem}::{name}[{label}]",
                lambda function=function, arguments=arguments: function(**arguments),
            )


def collect(folder: Path, only: str) -> list[tuple[str, Callable[[], Any]]]:
    """All tests of a folder in a fixed order."""
    install_stand_in()
    files = sorted(folder.rglob("test_*.py"))
    return [test for path in files for test in tests_in(path) if only in test[0]]


def attempt(name: str, body: Callable[[], Any]) -> Result:
    """Run one test; what it raises is the result."""
    try:
        body()
    except Exception:
        return Result(name, traceback.format_exc(limit=-4))
    return Result(name)


def run_worker(tests: Sequence[tuple[str, Callable[[], Any]]], first: int, step: int) -> int:
    """Run every ``step``-th test from ``first`` on; results go out as JSON lines."""
    for name, body in tests[first::step]:
        result = attempt(name, body)
        print(json.dumps(asdict(result)), flush=True)
        if any(text in result.problem for text in DEVICE_ERRORS):
            return BROKEN_DEVICE
    return 0


def read_results(process: subprocess.Popen[str], timeout_s: float) -> list[Result]:
    """Results of a worker, ended when one test takes longer than allowed."""
    assert process.stdout is not None
    results: list[Result] = []
    watchdog = threading.Timer(timeout_s, process.kill)
    watchdog.start()
    for line in process.stdout:
        if line.startswith("{"):
            results.append(Result(**json.loads(line)))
            watchdog.cancel()
            watchdog = threading.Timer(timeout_s, process.kill)
            watchdog.start()
    process.wait()
    watchdog.cancel()
    return results


def run_shard(
    names: Sequence[str], first: int, step: int, arguments: Sequence[str], timeout_s: float
) -> list[Result]:
    """Run one shard, with a new worker after each crash, from the test after it."""
    results: list[Result] = []
    mine = names[first::step]
    while len(results) < len(mine):
        start = first + step * len(results)
        place = [f"--first={start}", f"--step={step}"]
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.plain_runner", *arguments, *place],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        new = read_results(process, timeout_s)
        results += new
        if process.returncode not in (0, BROKEN_DEVICE) and len(results) < len(mine):
            reason = f"crashed or hung (exit {process.returncode})"
            results.append(Result(mine[len(results)], reason))
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print failures last; the exit status is 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="tests whose name contains this")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--timeout", type=float, default=90.0, help="seconds for one test")
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--step", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    tests = collect(options.folder.resolve(), options.only)
    if options.first is not None:
        return run_worker(tests, options.first, options.step)
    names = [name for name, _ in tests]
    passed_on = [str(options.folder), f"--only={options.only}"]
    with ThreadPoolExecutor(options.jobs) as pool:
        shards = pool.map(
            lambda first: run_shard(names, first, options.jobs, passed_on, options.timeout),
            range(min(options.jobs, len(names))),
        )
        results = [result for shard in shards for result in shard]
    failed = sorted((item for item in results if item.problem), key=lambda item: item.name)
    for result in failed:
        print(f"FAILED {result.name}\n{result.problem}")
    for result in failed:
        print(f"FAILED {result.name}: {result.problem.strip().splitlines()[-1]}")
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    return int(bool(failed) or not results)


if __name__ == "__main__":
    sys.exit(main())
