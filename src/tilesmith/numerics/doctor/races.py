"""Whether the order in which programs or threads run decides what a kernel gives.

The race detector of the interpreter runs the kernel with small tiles, so that every axis has
several programs; where there are too many, neighbours at the beginning are run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from tilesmith.compiler.interpreter_tiles import split_tile_sizes
from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.diagnostics.errors import DuplicateStoreIndicesError, RaceDetected
from tilesmith.interpreter.prepare import prepare_function
from tilesmith.interpreter.run import run_prepared
from tilesmith.interpreter.sampling import Sampling, TimeLimitError
from tilesmith.numerics.doctor.diagnosed_call import choose_config
from tilesmith.numerics.doctor.findings import (
    OURS,
    Agreement,
    CauseKind,
    DiagnosedCall,
    Finding,
    Scope,
)
from tilesmith.numerics.reference_tiles import needs_all_programs
from tilesmith.numerics.scratch_tensors import copy_written

_MOST_PROGRAMS = 256
_SPLIT_SIZE = 32
"""Blocks without a size of their own in the check."""
Flaw = RaceDetected | DuplicateStoreIndicesError


@dataclass(frozen=True)
class RaceCheck:
    """What the race detector says about a kernel."""

    finding: Finding | None = None
    skipped: str = ""
    """Why it could not look."""


def check_races(subject: DiagnosedCall) -> RaceCheck:
    """Run the kernel under the race detector."""
    found = _check_with(subject, _split_sizes(subject))
    # Where host code makes tensors that fit the tiles, tiles must stay as they are.
    return _check_with(subject, {}) if found.skipped else found


def _check_with(subject: DiagnosedCall, sizes: Mapping[str, int]) -> RaceCheck:
    try:
        flaw = _run_checked(subject, sizes)
    except (BaseError, TimeLimitError, RuntimeError, MemoryError) as error:
        return RaceCheck(skipped=str(error).partition("\n")[0])
    return RaceCheck() if flaw is None else RaceCheck(_describe(flaw))


def _describe(flaw: Flaw) -> Finding:
    text = str(flaw).partition("\n")[0]
    where = f" ({flaw.loc})" if flaw.loc is not None and flaw.loc.line else ""
    evidence = ("the race detector of the interpreter saw it, whatever the device does",)
    return Finding(CauseKind.RACE, f"{text}{where}", evidence, OURS)


def find_unsteady(subject: DiagnosedCall, agreements: Sequence[Agreement]) -> list[Finding]:
    """Implementations whose repeated runs differ, and what that can come from."""
    dependence = order_dependence(subject)
    found: list[Finding] = []
    for agreement in agreements:
        if agreement.over is not Scope.REPEATS or agreement.skipped or agreement.is_same:
            continue
        evidence = (
            f"{agreement.num_different} of {agreement.num_elements} elements differ among "
            f"{agreement.num_runs} runs on the same inputs, such as {agreement.first}",
        )
        who = agreement.implementation
        if who == OURS and agreement.num_unwritten == agreement.num_different:
            text = f"No program writes {agreement.first}: it is what was in memory before."
            found.append(Finding(CauseKind.BUG, text, evidence, who))
        elif who == OURS and dependence:
            found.append(Finding(CauseKind.ORDER, dependence, evidence, who))
        else:
            text = f"repeated runs of {who} on the same inputs differ: it has a race"
            found.append(Finding(CauseKind.RACE, text, evidence, who))
    return found


def order_dependence(subject: DiagnosedCall) -> str:
    """That the order of programs decides the last bits, and where; empty if it does not."""
    return subject.bound.order_dependence(choose_config(subject.bound))


def _split_sizes(subject: DiagnosedCall) -> dict[str, int]:
    """Sizes that give several programs along every axis."""
    function = subject.function
    tuned = {b.slot: b for b in function.blocks if b.slot is not None}
    blocks = [_SPLIT_SIZE] * (max(tuned, default=-1) + 1)
    for slot, block in tuned.items():
        blocks[slot] = min(_SPLIT_SIZE, subject.sizes.get(block.name, _SPLIT_SIZE))
    split = split_tile_sizes(function, blocks)
    return {block.name: split[slot] for slot, block in tuned.items()}


def _run_checked(subject: DiagnosedCall, sizes: Mapping[str, int]) -> Flaw | None:
    function = subject.function
    runtime = {size.name: int(subject.arguments[size.name]) for size in function.sizes}
    copies = copy_written(function, subject.arguments, is_wide=False)
    try:
        with torch.no_grad():
            run_prepared(
                prepare_function(function),
                {**subject.arguments, **copies},
                {**runtime, **subject.sizes, **sizes},
                races=True,
                sampling=_sampling(subject),
            )
    except (RaceDetected, DuplicateStoreIndicesError) as flaw:
        return flaw
    return None


class _FirstPrograms(Sampling):
    """Neighbours race with each other, so the first programs are better than some at random."""

    def _numbers(self, count: int) -> Sequence[int]:
        return range(min(count, _MOST_PROGRAMS))


def _sampling(subject: DiagnosedCall) -> Sampling:
    limit_s = subject.oracle.time_limit_s
    if needs_all_programs(subject.function):
        return Sampling(None, time_limit_s=limit_s)
    return _FirstPrograms(_MOST_PROGRAMS, time_limit_s=limit_s)
