"""Tries every function that torch describes, type by type, on the backends asked for."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Container, Sequence

import torch

from tilesmith.frontend.functions.torch_functions import TORCH_FUNCTIONS
from tools.op_table.operators import Operator, all_operators, looked_up_name
from tools.op_table.probe import Finding, Trial, Verdict, prepare, run_trials
from tools.op_table.recorded import DTYPES, Collector, Results
from tools.op_table.samples import Sample, choose

_NARROW = (torch.int8, torch.uint8)
_TRIED_IN_NARROW_TYPES = (
    "bitwise", "add", "sub", "mul", "neg", "abs", "floor_divide", "remainder", "eq", "lt", "where",
    "clamp", "sum", "maximum",
)  # fmt: skip


def survey(
    backends: Sequence[str], *, only: Container[str] | None = None, progress: bool = False
) -> Results:
    """Run the functions of the table (or only some of them) and collect the verdicts."""
    with warnings.catch_warnings():
        # Torch's samples use what torch itself warns of.
        warnings.simplefilter("ignore")
        return _survey(backends, only, progress=progress)


def _survey(backends: Sequence[str], only: Container[str] | None, *, progress: bool) -> Results:
    collector = Collector()
    missing: set[str] = set()
    for operator in all_operators():
        name = looked_up_name(operator, TORCH_FUNCTIONS)
        if name is None:
            missing.add(operator.label)
            continue
        if only is not None and name not in only:
            continue
        if progress:
            print(operator.label, file=sys.stderr, flush=True)
        for dtype in _dtypes(operator, name):
            for backend, findings in try_operator(operator, dtype, backends).items():
                collector.add(name, backend, dtype, findings)
    results = collector.results()
    results.not_provided = sorted(missing)
    return results


def try_operator(
    operator: Operator, dtype: torch.dtype, backends: Sequence[str]
) -> dict[str, list[Finding]]:
    """Findings by backend for the samples of one element type."""
    tried = [prepare(operator, sample) for sample in choose(_draw(operator, dtype), dtype)]
    trials = [trial for trial in tried if isinstance(trial, Trial)]
    skipped = [Finding(Verdict.NOT_APPLICABLE, why) for why in tried if isinstance(why, str)]
    found = run_trials(trials, backends) if trials else {name: [] for name in backends}
    return {backend: [*findings, *skipped] for backend, findings in found.items()}


def _dtypes(operator: Operator, name: str) -> list[torch.dtype]:
    with_narrow = name.startswith(_TRIED_IN_NARROW_TYPES)
    return [
        dtype
        for dtype in DTYPES
        if dtype in operator.dtypes and (with_narrow or dtype not in _NARROW)
    ]


def _draw(operator: Operator, dtype: torch.dtype) -> list[Sample]:
    try:
        return list(operator.draw(dtype))
    except (RuntimeError, NotImplementedError, AssertionError):
        return []
