"""Launches that are refused: of what has no room, and of what would take minutes to compile.

The latter only where another config may run instead: a default that was chosen for other sizes.
What somebody asked for is compiled as long as it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

import tilesmith.exc as errors
from tilesmith.artifacts import Artifact

MOST_BYTES = 4096
"""Of one tile for each thread: four times its registers. With twice as much ptxas ran for two to
seven minutes, with half as much for some seconds."""


def refuse_long(
    artifact: Artifact, launch: Callable[..., None], constexprs: Sequence[int], path: Path
) -> None:
    """Raise for tiles too large for their threads; ``launch`` knows whether it can be replaced."""
    if not artifact.bytes_of_threads or not getattr(launch, "is_replaceable", False):
        return
    names = dict(zip((name for name, _ in artifact.constexprs), constexprs))
    found = eval(artifact.bytes_of_threads, {"__builtins__": {}, "max": max}, names)
    if found >= MOST_BYTES:
        problem = f"out of resources: each thread would hold {found} bytes of one tile"
        name = artifact.name.lstrip("_")
        raise errors.TritonError.wrapping(ValueError(problem), function=name, path=str(path))


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
