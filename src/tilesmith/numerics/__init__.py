"""Accuracy judged against float64: ulps, derived error budgets, comparison and test inputs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilesmith.numerics.doctor.diagnose import diagnose as diagnose
    from tilesmith.numerics.doctor.findings import DiagnoseOptions as DiagnoseOptions

_HOMES = {
    "diagnose": "tilesmith.numerics.doctor.diagnose",
    "DiagnoseOptions": "tilesmith.numerics.doctor.findings",
}


def __getattr__(name: str) -> Any:
    """The doctor is loaded when it is asked for: judging results needs no compiler."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
