"""What a worker was doing when it died, and what it knew by then: a small file it leaves behind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tilesmith.bench.row import Row


class Stage(str, Enum):
    """What a worker does; who is to blame for a death depends on it."""

    PREPARE = "making the arguments"
    CHECK = "building the implementation, calling it, judging its results"
    BASELINE = "calling the eager form"
    MEASURE = "timing"


@dataclass(frozen=True)
class Progress:
    """The stage that was begun last and the row before it."""

    stage: Stage
    row: Row

    def save(self, path: Path) -> None:
        """Leave it; a reader never sees half of it."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({"stage": self.stage.value, "row": self.row.to_json()}))
        partial.replace(path)

    @classmethod
    def load(cls, path: Path, row: Row) -> Progress:
        """What was left; where nothing was, the given row before anything was done."""
        try:
            found = json.loads(path.read_text())
            return cls(Stage(found["stage"]), Row.from_json(found["row"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls(Stage.PREPARE, row)
