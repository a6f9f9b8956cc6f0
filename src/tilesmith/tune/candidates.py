"""Candidates before they are measured: the seeds, the filter, the queue of those that are built.

The default goes before all others. Without it nobody could tell whether a search has gained
anything: whichever candidate is measured last before the budget ends would win against nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tilesmith.exc import InvalidConfig
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.tune.context import EmittedCandidate, TuneContext
from tilesmith.tune.jobs import BuildReply
from tilesmith.tune.limits import Deadline
from tilesmith.tune.tally import Tally

LOG = logging.getLogger("tilesmith.autotune")
DEFAULT_ORIGIN = "default"
NUM_RANKED = 16
"""Configs of the device model that a search starts from."""
RECALL_RATIO = 1.1
"""A candidate known to be slower than this multiple of the best is not measured again."""
OLD_RECALL_RATIO = 1.5
"""The same while the best is itself only known from before."""
Built = tuple[EmittedCandidate, BuildReply]
HOLD_SHARE = 0.5
"""Of the budget: so long others wait for a default that takes long to build."""


def make_seeds(
    spec: ConfigSpec, given: Sequence[Config], known: Iterable[Config]
) -> tuple[Candidate, ...]:
    """Ranked, best first, none twice; what does not fit the kernel is left out and logged."""
    ordered = [
        *((config, "user") for config in given),
        (spec.default_config(), DEFAULT_ORIGIN),
        *((config, "journal") for config in known),
        *((ranked.config, "model") for ranked in spec.ranked_configs(NUM_RANKED)),
    ]
    seeds: dict[Config, Candidate] = {}
    for config, origin in ordered:
        try:
            normal = spec.normalize(config)
        except InvalidConfig as error:
            level = logging.WARNING if origin == "user" else logging.DEBUG
            LOG.log(level, "a seed config (%s) is left out: %s", origin, str(error).splitlines()[0])
            continue
        if normal not in seeds:
            seeds[normal] = Candidate(normal, origin, spec.predict(normal).total_ms)
    return tuple(seeds.values())


class CandidateFilter:
    """Decides what becomes of candidates before they are built."""

    def __init__(self, context: TuneContext, tally: Tally) -> None:
        self._context, self._tally = context, tally
        self.emitted: dict[Config, EmittedCandidate] = {}
        """All that were emitted: finalists are checked anew."""

    def admit(self, candidate: Candidate) -> list[Outcome]:
        """Outcomes that are known now; an empty list: it was submitted."""
        kept = self._context.keep(candidate.config)
        if kept == candidate.config:
            return self._admit_kept(candidate)
        filtered = Outcome(candidate, Verdict.FILTERED, "by the filter for configs")
        if kept is None or kept in self.emitted or self._tally.find(kept) is not None:
            return [filtered]
        return [filtered, *self._admit_kept(replace(candidate, config=kept))]

    def _admit_kept(self, candidate: Candidate) -> list[Outcome]:
        outcome = self._known_outcome(candidate) or self._submit(candidate)
        return [] if outcome is None else [outcome]

    def _known_outcome(self, candidate: Candidate) -> Outcome | None:
        dependence = self._context.find_dependence and self._context.find_dependence(candidate)
        if dependence:
            return Outcome(candidate, Verdict.ORDER_DEPENDENT, dependence)
        obstacle = self._context.find_obstacle(candidate)
        if obstacle:
            return Outcome(candidate, Verdict.INFEASIBLE, obstacle)
        known = self._context.records.recall(candidate.config)
        if known is None or not known.verdict.is_timed:
            return known
        # Times of another day, or of another load, differ a little: the promising are measured
        # again. So is the default: what the search gains is told against it.
        best = self._tally.best
        if best is None or best.is_recalled:
            limit_ms = OLD_RECALL_RATIO * self._context.records.best_ms
        else:
            limit_ms = RECALL_RATIO * best.time_ms
        is_default = candidate.origin == DEFAULT_ORIGIN
        return None if is_default or known.time_ms <= limit_ms else known

    def _submit(self, candidate: Candidate) -> Outcome | None:
        try:
            emitted = self._context.emit(candidate)
        except Exception as error:  # whatever emitting raises is this candidate's own failure
            return Outcome(candidate, Verdict.BUILD_ERROR, f"{type(error).__name__}: {error}")
        self.emitted[candidate.config] = emitted
        self._context.builder.submit(emitted)
        return None


class ReadyQueue:
    """Candidates that are built and not yet run."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._items: deque[Built] = deque()
        self.default: Config | None = None
        """The default, if it was submitted."""
        self._is_building_default = False

    def __len__(self) -> int:
        return len(self._items)

    def note_submitted(self, candidate: Candidate) -> None:
        """A candidate is being built."""
        if candidate.origin == DEFAULT_ORIGIN:
            self.default, self._is_building_default = candidate.config, True

    def extend(self, built: Iterable[Built]) -> None:
        """Take over what is built."""
        for item in built:
            if item[0].candidate.config == self.default:
                self._is_building_default = False
                self._items.appendleft(item)
            else:
                self._items.append(item)

    def pop(self) -> Built:
        """The candidate whose turn it is, which leaves the queue."""
        return self._items.popleft()

    @property
    def is_held(self) -> bool:
        """Whether those that are here wait for the default."""
        end_s = HOLD_SHARE * self._deadline.budget_s
        return self._is_building_default and self._deadline.elapsed_s < end_s
