"""The way in: a candidate is settled by what is known of it, or goes to the builder."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.tune.seeds import DEFAULT_ORIGIN
from tilesmith.tune.stations import Entrant, Stations
from tilesmith.tune.tally import Tally

RECALL_RATIO = 1.1
"""A candidate known to be slower than this multiple of the best is not measured again."""
OLD_RECALL_RATIO = 1.5
"""The same while the best is itself only known from before."""


class Intake:
    """Decides what becomes of candidates before they are built."""

    def __init__(self, stations: Stations, tally: Tally) -> None:
        self._at = stations
        self._tally = tally
        self.entrants: dict[Config, Entrant] = {}
        """All that were emitted: finalists are checked anew."""

    def admit(self, candidate: Candidate) -> list[Outcome]:
        """Outcomes that are known now; an empty list: it was submitted."""
        kept = self._at.keep(candidate.config)
        if kept == candidate.config:
            return self._admit_kept(candidate)
        filtered = Outcome(candidate, Verdict.FILTERED, "by the filter for configs")
        if kept is None or kept in self.entrants or self._tally.find(kept) is not None:
            return [filtered]
        return [filtered, *self._admit_kept(replace(candidate, config=kept))]

    def _admit_kept(self, candidate: Candidate) -> list[Outcome]:
        outcome = self._known_outcome(candidate) or self._submit(candidate)
        return [] if outcome is None else [outcome]

    def _known_outcome(self, candidate: Candidate) -> Outcome | None:
        dependence = self._at.find_dependence and self._at.find_dependence(candidate)
        if dependence:
            return Outcome(candidate, Verdict.ORDER_DEPENDENT, dependence)
        obstacle = self._at.find_obstacle(candidate)
        if obstacle:
            return Outcome(candidate, Verdict.INFEASIBLE, obstacle)
        known = self._at.records.recall(candidate.config)
        if known is None or not known.verdict.is_timed:
            return known
        # What the search gains is told against the default: its time must be of the same day.
        is_default = candidate.origin == DEFAULT_ORIGIN
        return None if is_default or self._is_promising(known) else known

    def _is_promising(self, known: Outcome) -> bool:
        """Whether to measure again: times of another day, or of another load, differ a little."""
        best = self._tally.best
        if best is None or best.is_recalled:
            return known.time_ms <= OLD_RECALL_RATIO * self._at.records.best_ms
        return known.time_ms <= RECALL_RATIO * best.time_ms

    def _submit(self, candidate: Candidate) -> Outcome | None:
        try:
            entrant = self._at.emit(candidate)
        except Exception as error:  # whatever emitting raises is this candidate's own failure
            return Outcome(candidate, Verdict.BUILD_ERROR, f"{type(error).__name__}: {error}")
        self.entrants[candidate.config] = entrant
        self._at.builder.submit(entrant)
        return None
