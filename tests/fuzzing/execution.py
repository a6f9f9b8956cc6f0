"""Runs programs in many ways and compares each with the oracle."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.fuzzing.program import Program, UndecidedError
from tests.fuzzing.runs import Case, cases
from tests.fuzzing.threads import threads_for
from tests.fuzzing.ways import DEFAULTS, GPU_MODES, Way, ways
from tilesmith.exc import AutodiffNotSupported, InvalidConfig, TritonError
from tilesmith.lab.failures import classify
from tilesmith.store.outcome import Verdict as Outcome


@dataclass(frozen=True)
class Failure:
    """A way to run a program that went wrong, and the program with the shapes and data of that."""

    way: str
    problem: str
    program: Program | None = None


Compared = dict[tuple[str, str], str]
"""The backend of each pair of a config (or another way) and sizes whose results were compared."""


@dataclass(frozen=True)
class Verdict:
    """What came of a program: the first way that went wrong, and those that were refused.

    Attributes:
        cases: how often results were compared, by backend: one kernel, shape and config each.
    """

    failure: Failure | None
    refused: tuple[Failure, ...] = ()
    cases: Counter[str] = field(default_factory=Counter[str])


class Watch(NamedTuple):
    """Who looks on.

    Attributes:
        stop: nothing is begun after this time.
        tell: is told each shape (its number) and way before it runs, and the cases before it.
    """

    stop: float = math.inf
    tell: Callable[[int, str, Counter[str]], None] = lambda number, way, cases: None


UNWATCHED = Watch()


def judge(members: Sequence[Program], seed: int, mode: str, watch: Watch = UNWATCHED) -> Verdict:
    """Run programs that share a kernel in all ways up to one that goes wrong.

    Raises UndecidedError if nothing is known of any.
    """
    refused: list[Failure] = []
    compared: Compared = {}
    for case in cases(members):
        if time.monotonic() > watch.stop:
            break
        # On a GPU there is nothing for threads to share.
        with threads_for(case.program, seed) if mode not in GPU_MODES else nullcontext():
            failure = _judge_case(case, seed, mode, refused, compared, watch)
        if failure is not None:
            return Verdict(failure, tuple(refused), Counter(compared.values()))
    wrong = next((failure for failure in refused if not is_too_large(failure.problem)), None)
    return Verdict(wrong, tuple(refused), Counter(compared.values()))


def _judge_case(
    case: Case,
    seed: int,
    mode: str,
    refused: list[Failure],
    compared: Compared,
    watch: Watch,
) -> Failure | None:
    name, program = "bind", case.program
    try:
        for way in ways(case, seed, mode):
            name = way.name
            if time.monotonic() > watch.stop:
                return None
            watch.tell(case.number, name, Counter(compared.values()))
            try:
                problem = way.find_problem()
            except (UndecidedError, AutodiffNotSupported):
                continue  # nothing is known, or it is said that there is no gradient
            except (InvalidConfig, TritonError) as error:
                refused.append(_refusal(way, error, program))
                continue
            if problem:
                return Failure(name, problem, program)
            if way.is_compared:  # the same shape with other data is no other case
                kind = way.counts_as or name
                compared.setdefault((kind, str(sorted(program.sizes.items()))), way.backend)
    except InvalidConfig as error:
        # No config at all is small enough: what comes after this way cannot be run.
        refused.append(Failure(f"after {name}", f"{type(error).__name__}: {error}", program))
    except Exception as error:
        return Failure(name, f"{type(error).__name__}: {error}", program)
    return None


def _refusal(way: Way, error: InvalidConfig | TritonError, program: Program) -> Failure:
    """Raises where it is none: random configs may need more than a GPU has, the default may not."""
    if isinstance(error, InvalidConfig):
        return Failure(way.name, f"{type(error).__name__}: {error}", program)
    verdict, reason = classify(error, Outcome.RUN_ERROR)
    if way.backend in DEFAULTS or verdict is not Outcome.OUT_OF_RESOURCES:
        raise error
    return Failure(way.name, f"{verdict.value}: {reason}", program)


def is_too_large(problem: str) -> bool:
    """Whether a GPU has no room for a tile, as a refusal must say with both sizes."""
    if problem.startswith(Outcome.OUT_OF_RESOURCES.value):
        return True
    found = re.search(r"would hold (\d+) elements.*at most (\d+) elements", problem, re.DOTALL)
    return found is not None and int(found[1]) > int(found[2])


def first_failure(members: Sequence[Program], seed: int, mode: str) -> Failure | None:
    """The first way to run programs that goes wrong."""
    return judge(members, seed, mode).failure


def is_same_failure(found: Failure | None, wanted: Failure) -> bool:
    """Whether a program fails alike: in the same backend, by results or by the same error."""
    backends = [failure.way.split()[0].partition(":")[0] for failure in (found or wanted, wanted)]
    if found is None or backends[0] != backends[1]:
        return False
    kinds = [failure.problem.split(":")[0].split()[0] for failure in (found, wanted)]
    return kinds[0] == kinds[1]
