"""Runs tests on a copy of the tree with one mistake in it, and says which test noticed."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.mutants.mutant import ROOT, Mutant, find_file, read_source

COPIED = ("src", "tests", "tools", "examples", "benchmarks", "docs")
FAILED = re.compile(r"^FAILED (\S+)", re.MULTILINE)
_TESTS_FAILED = 1
_REPORT_LINES = 15


@dataclass(frozen=True)
class Verdict:
    """How a run of tests on one tree ended: the test that failed, or a problem of the run."""

    killer: str = ""
    problem: str = ""
    seconds: float = 0.0

    @property
    def is_killed(self) -> bool:
        """Whether a test noticed."""
        return bool(self.killer)


class Copy:
    """A copy of what tests read, used for one mutant after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tree = folder / "tree"
        self._tree.mkdir()
        self._moments = itertools.count(int(time.time()) + 1)
        for name in COPIED:
            shutil.copytree(ROOT / name, self._tree / name)
        for file in ROOT.iterdir():
            if file.is_file():
                shutil.copy2(file, self._tree)

    def try_mutant(self, mutant: Mutant, tests: Sequence[str], limit_s: float) -> Verdict:
        """Run tests on the copy with the mistake until one fails."""
        source = self._tree / "src" / "tilesmith"
        texts = read_source(source)
        path = find_file(mutant, texts)
        self._write(source / path, texts[path].replace(mutant.before, mutant.after))
        try:
            return self.run_tests(tests, limit_s)
        finally:
            self._write(source / path, texts[path])

    def _write(self, file: Path, text: str) -> None:
        """Replace a file; each time a second later than the last.

        Python takes a compiled module for current by the size and the second of its source:
        a mutant of the same size, mended within that second, would go on living.
        """
        file.write_text(text, encoding="utf-8")
        moment = next(self._moments)
        os.utime(file, (moment, moment))

    def run_tests(self, tests: Sequence[str], limit_s: float) -> Verdict:
        """Run tests on the copy as it is until one fails. Compiled kernels are not kept."""
        started = time.monotonic()
        with tempfile.TemporaryDirectory(dir=self._folder) as cache:
            code, output = self._run(tests, cache, limit_s)
        seconds = time.monotonic() - started
        found = FAILED.search(output)
        if code == _TESTS_FAILED and found:
            return Verdict(killer=found[1].partition("[")[0], seconds=seconds)
        if code == 0:
            return Verdict(seconds=seconds)
        tail = "\n".join(output.splitlines()[-_REPORT_LINES:])
        return Verdict(problem=f"no verdict, pytest gave {code}:\n{tail}", seconds=seconds)

    def _run(self, tests: Sequence[str], cache: str, limit_s: float) -> tuple[int | None, str]:
        """Exit code and output; no code when the time was over."""
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
            cwd=self._tree,
            env=self._environment(cache),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            # A mutant may hang in a child of its tests: the whole group goes.
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, output
        return process.returncode, output

    def _environment(self, cache: str) -> dict[str, str]:
        """That of this process, with the copy's modules; those stay compiled between runs."""
        inherited = dict(os.environ)
        inherited.pop("PYTHONDONTWRITEBYTECODE", None)
        paths = os.pathsep.join([str(self._tree / "src"), str(self._tree)])
        return {**inherited, "PYTHONPATH": paths, "TILESMITH_CACHE_DIR": cache}
