"""Runs native artifacts on launch arguments, as a runner does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilesmith.artifacts import Artifact
from tilesmith.runtime.arguments import LaunchOptions
from tilesmith.runtime.launchers.cpu import native_launcher


def launch_native(artifact: Artifact, arguments: Sequence[Any], folder: Path) -> None:
    """Build an artifact for a CPU and run it."""
    names = [parameter.name for parameter in artifact.parameters]
    flat = replace(
        artifact, parameters=tuple(replace(p, source=p.name) for p in artifact.parameters)
    )
    native_launcher(flat, names, (), LaunchOptions(folder))(*arguments)
