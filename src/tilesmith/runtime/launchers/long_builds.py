"""Launches that are refused: of what has no room, and of what would take minutes to compile.

The latter only where another config may run instead: a default that was chosen for other sizes.
What somebody asked for is compiled as long as it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.artifacts import Artifact
from tilesmith.runtime.arguments import FindOther, Launcher

MOST_BYTES = 4096
"""Of one tile for each thread: four times its registers. With twice as much ptxas ran for two to
seven minutes, with half as much for some seconds."""


class LongBuilds:
    """Sizes for which tiles are too large for their threads; another config launches those."""

    def __init__(self, artifact: Artifact, path: Path, find_other: FindOther) -> None:
        names = ", ".join(name for name, _ in artifact.constexprs)
        text = f"lambda {names}: {artifact.bytes_of_threads}"
        self._bytes: Callable[..., int] = eval(text, {"__builtins__": {}, "max": max})
        self._place: dict[str, Any] = {"function": artifact.name.lstrip("_"), "path": str(path)}
        self._find_other = find_other
        self._other: Launcher | None = None

    def find(self, *constexprs: int) -> Launcher | None:
        """What launches instead; None where code is built in seconds."""
        found = self._bytes(*constexprs)
        if found < MOST_BYTES:
            return None
        if self._other is None:
            problem = f"out of resources: each thread would hold {found} bytes of one tile"
            self._other = self._find_other(
                errors.TritonError.wrapping(ValueError(problem), **self._place)
            )
        return self._other


def check_room(
    artifact: Artifact, device: torch.device, get_num_sm: Callable[[torch.device], int]
) -> None:
    """Raise where programs would wait for others that find no place to run."""
    if not artifact.least_sms or get_num_sm(device) >= artifact.least_sms:
        return
    raise errors.InvalidConfig(
        problem=f"its programs wait for each other, and {device} has {get_num_sm(device)} "
        "multiprocessors",
        expected=f"{artifact.least_sms} multiprocessors or more",
        fix="bind the kernel for this device, or leave structure out of the config",
    )
