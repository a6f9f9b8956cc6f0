"""When a search got how far: what the time until the first measurement went into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Timeline:
    """Seconds by name: moments are counted from the start of the search."""

    ORDER: ClassVar[Mapping[str, str]] = {
        "saved": "workload saved at",
        "runner": "runner up at",
        "loading": "loaded in",
        "reference": "reference in",
        "prepared": "ready at",
        "build": "first build at",
        "tried": "first candidate at",
    }
    """What there is to note before the first measurement, and how it is said."""
    MEASURED: ClassVar[str] = "measured"
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def note(self, name: str, seconds: float) -> None:
        """Keep when something happened first, or how long it took."""
        self.seconds.setdefault(name, max(0.0, seconds))

    @property
    def text(self) -> str:
        """In one line; empty if nothing was measured."""
        if self.MEASURED not in self.seconds:
            return ""
        noted = [(words, self.seconds[n]) for n, words in self.ORDER.items() if n in self.seconds]
        listed = ", ".join(f"{words} {value:.2f}" for words, value in noted)
        after = f"first time after {self.seconds[self.MEASURED]:.2f} s"
        return f"{after}: {listed}" if listed else after
