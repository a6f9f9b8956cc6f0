"""What is known of bugs and programs, one line of JSON for each thing, so that grading goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.fuzzing.records import commit

Line = dict[str, Any]
CHECKPOINT = 10
"""Programs that are tried again at most after a process was killed."""


class Grades:
    """Lines about one commit and one seed, and those added to them; several processes may add."""

    def __init__(self, path: Path | None, seed: str) -> None:
        self._path = path
        self._about = {"commit": commit(), "seed": seed}
        self._lines: list[Line] = []
        for text in path.read_text().splitlines() if path and path.exists() else ():
            if text.endswith("}"):
                line = json.loads(text)
                if self._about.items() <= line.items():
                    self._lines.append(line)

    def add(self, **line: Any) -> None:
        """Write a line at once."""
        self._lines.append({**self._about, **line})
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps(self._lines[-1]) + "\n")

    def is_right(self, number: int, mode: str) -> bool | None:
        """Whether a program goes well without any bug, if that was looked at."""
        found = [line for line in self._lines if line.get("program") == (f"{mode}/{number}")]
        return found[-1]["is_right"] if found else None

    def set_right(self, number: int, mode: str, is_right: bool) -> None:
        """Remember it for other bugs."""
        self.add(program=f"{mode}/{number}", is_right=is_right)

    def tried(self, name: str) -> int:
        """Programs that did not notice a bug."""
        return max((line["tried"] for line in self._lines if line.get("passed") == name), default=0)

    def set_tried(self, name: str, tried: int) -> None:
        """So many programs did not notice a bug."""
        self.add(passed=name, tried=tried)

    def grade(self, name: str, limit: int) -> Line | None:
        """What came of a bug: it was noticed within so many programs, or by none of so many."""
        for line in self._lines:
            if line.get("name") == name and (line["is_caught"] or line["tried"] >= limit):
                is_caught = line["is_caught"] and line["tried"] <= limit
                return {**line, "is_caught": is_caught, "tried": min(line["tried"], limit)}
        return None
