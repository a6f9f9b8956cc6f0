"""What was checked, one line of JSON for each program, so that runs add up."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

GOOD = ("same", "undecided", "refused", "cut")
"""Nothing is wrong: results agree, or there are none to compare, or the time was over."""
Line = dict[str, Any]


def commit() -> str:
    """The commit that is checked, with a mark if files differ from it."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # a machine without git
        return "unknown"
    return found.stdout.strip() or "unknown"


class Records:
    """Lines of a file, and those added to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: dict[tuple[int, int, str], Line] = {}
        for text in path.read_text().splitlines() if path.exists() else ():
            if text.endswith("}"):  # the last one may have been cut off
                self._remember(json.loads(text))

    def _remember(self, line: Line) -> None:
        self._lines[line["seed"], line["index"], line["mode"]] = line

    def is_done(self, job: Line) -> bool:
        """Whether a job went well before; one that did not is tried again."""
        line = self._lines.get((job["seed"], job["index"], job["mode"]))
        return line is not None and line["outcome"] in GOOD

    def add(self, line: Line) -> None:
        """Write a line at once: the process may end at any time."""
        self._remember(line)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def summary(self) -> str:
        """Programs and cases of the whole file, by outcome, backend and commit."""
        outcomes: Counter[str] = Counter(line["outcome"] for line in self._lines.values())
        cases: Counter[str] = Counter()
        commits: Counter[str] = Counter()
        seconds: Counter[str] = Counter()
        for line in self._lines.values():
            cases.update(line["cases"])
            commits[line["commit"]] += sum(line["cases"].values())
            seconds.update({k: round(v) for k, v in line.get("seconds", {}).items()})
        is_run = all(line["mode"] != "unlaunched" for line in self._lines.values())
        verb = "compared" if is_run else "compiled (not launched) or compared"
        refused = sum(line.get("refused", 0) for line in self._lines.values())
        return (
            f"{sum(outcomes.values())} programs: {_listed(outcomes)}\n"
            f"{refused} times a GPU had no room for a config\n"
            f"{sum(cases.values())} cases (kernel, shape, config) {verb}: {_listed(cases)}\n"
            f"cases by commit: {_listed(commits)}\n"
            f"seconds of workers: {_listed(seconds)}"
        )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common() if count)
