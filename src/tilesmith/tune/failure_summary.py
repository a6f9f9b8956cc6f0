"""Why candidates were not used, in words: one line when some failed, a histogram when all did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tilesmith.store.outcome import Outcome, Verdict

MAX_LINES = 4
"""Of one example's message."""


def summarize_rejected(counts: Mapping[Verdict, int], failures: Sequence[Outcome]) -> str:
    """One line with counts and reasons; empty when every candidate was usable.

    Example:
        "12 of 80 candidates were not used: 7 out of resources, 3 crashed, 2 wrong result (...)"
    """
    rejected = {verdict: n for verdict, n in counts.items() if not verdict.is_timed}
    if not rejected:
        return ""
    ordered = sorted(rejected.items(), key=lambda item: -item[1])
    parts = [f"{count} {verdict.value}{_worst(verdict, failures)}" for verdict, count in ordered]
    total = sum(counts.values())
    verb = "was" if sum(rejected.values()) == 1 else "were"
    return f"{sum(rejected.values())} of {total} candidates {verb} not used: {', '.join(parts)}"


def describe_total_failure(failures: Sequence[Outcome]) -> str:
    """All causes with their frequency, each with one example; for a search without any success."""
    if not failures:
        return "no candidate was tried"
    lines = [f"none of {len(failures)} candidates can be used:"]
    for verdict, count in Counter(outcome.verdict for outcome in failures).most_common():
        example = next(outcome for outcome in failures if outcome.verdict is verdict)
        lines.append(f"  {count:4d}  {verdict.value}, e.g. {example.config}")
        lines += [f"        {line}" for line in example.reason.splitlines()[:MAX_LINES]]
    return "\n".join(lines)


def _worst(verdict: Verdict, failures: Sequence[Outcome]) -> str:
    """For wrong results, the first line of what was found: users will want to know how wrong."""
    if verdict is not Verdict.WRONG:
        return ""
    reasons = [outcome.reason for outcome in failures if outcome.verdict is verdict]
    reason = next((reason.splitlines()[0] for reason in reasons if reason), "")
    return f" (e.g. {reason})" if reason else ""


def rejections(outcomes: Iterable[Outcome]) -> dict[Verdict, list[Outcome]]:
    """Outcomes without a time by verdict, the most frequent first."""
    groups: dict[Verdict, list[Outcome]] = {}
    for outcome in outcomes:
        if not outcome.verdict.is_timed:
            groups.setdefault(outcome.verdict, []).append(outcome)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))
