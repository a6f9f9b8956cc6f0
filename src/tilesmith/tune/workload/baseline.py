"""Results of the user's own function, as what candidates must agree with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilesmith.frontend.containers import tensors_in
from tilesmith.tune.workload.results import copy_arguments
from tilesmith.tune.workload.saving import save_expected


def save_baseline(function: Callable[..., Any], args: tuple[Any, ...], folder: Path) -> Path:
    """Run the function on copies of the arguments and save the tensors it returns."""
    return save_expected(list(tensors_in(function(*copy_arguments(args)))), folder)
