"""How thorough a diagnosis is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilesmith.schedule.config import Config


@dataclass(frozen=True)
class DiagnoseOptions:
    """How much is measured.

    Attributes:
        repeats: runs of each implementation that must agree bit for bit.
        configs: configs whose results are compared; by default the decorator's and good ones.
        num_configs: how many good ones.
        check_batches: compare rows with the same rows of a smaller and a larger batch.
        num_worst: elements to show of each output of each implementation.
        inputs_time_limit_s: seconds to find out which inputs those depend on; 0: do not.
        reference: the same computation in fp64, from the arguments widened to fp64; by default
            the kernel itself with every float in fp64.
        max_programs: how many programs of the kernel to interpret; by default what is affordable.
        time_limit_s: seconds for the reference.
        explain: look for causes, not only for errors.
        seed: chooses the programs.
    """

    repeats: int = 5
    configs: Sequence[Config] = ()
    num_configs: int = 3
    check_batches: bool = True
    num_worst: int = 3
    inputs_time_limit_s: float = 5.0
    reference: Callable[..., Any] | None = None
    max_programs: int | None = None
    time_limit_s: float = 30.0
    explain: bool = True
    seed: int = 0
