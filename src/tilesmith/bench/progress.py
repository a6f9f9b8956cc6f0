"""What a worker was doing when it died, and what it knew by then: a small file it leaves behind."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from time import monotonic

from tilesmith.bench.row import Row


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
