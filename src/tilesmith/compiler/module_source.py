"""The complete module for readers and for saving: generated device code plus the user's host code."""

from __future__ import annotations

from tilesmith.artifacts import Artifact
from tilesmith.frontend.host_code import SplitKernel
from tilesmith.frontend.trace import Trace
from tilesmith.schedule.config import Config


def with_host_function(artifact: Artifact, kernel: SplitKernel, trace: Trace, config: Config) -> str:
    """The artifact's module, for now as the backend wrote it."""
    return artifact.source
