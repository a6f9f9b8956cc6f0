"""A runner that must be prepared before it answers, and can be made unable to be prepared."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tilesmith.lab.processes.serve import serve

time.sleep(0.6)  # what importing takes
state: dict[str, Any] = {}


def handle(job: tuple[str, Any]) -> Any:
    """Prepare, answer or die."""
    name, argument = job
    if name == "prepare":
        slot, value, poison = argument
        if poison is not None and Path(poison).exists():
            os._exit(5)
        state[slot] = value
        return len(state)
    if name == "die":
        os._exit(7)
    if name == "sleep":
        time.sleep(argument)
    return dict(state)


if __name__ == "__main__":
    serve(handle)
