"""What the model says of a launch, for rows: how long it takes, and what takes longest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.schedule.config import Config


def predicted(bounds: Mapping[str, BoundKernel], configs: Mapping[str, Config]) -> dict[str, Any]:
    """Fields of a row: of all kernels together, each launched once; none where it is not known."""
    try:
        launches = [bounds[name].config_spec.predict(config) for name, config in configs.items()]
    except Exception:  # a row without it is a row
        return {}
    longest = max(launches, key=lambda launch: launch.total_ms, default=None)
    total_ms = sum(launch.total_ms for launch in launches)
    return {"predicted_ms": total_ms, "limiter": longest.limiter} if longest else {}
