"""Parents and children of a search, killed at every step that they have.

A first run notes the steps. Then each is the last of some process once: at its first occurrence,
and at its last where it has several. A killed parent is started again; a killed child is not the
end of a search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.faults import search as trial
from tools.faults.points import Plan
from tools.faults.rows import Row

HARNESS = "report-"
"""Files of the scenario itself."""
TIMED = ("ok", "slower")


def note_steps(root: Path) -> dict[tuple[str, str], int]:
    """The steps of all processes of an undisturbed search, by role, and how often each comes."""
    spot = trial.Spot(root / "undisturbed")
    notes = spot.root / "steps"
    ended = trial.in_fork(spot, trial.search, Plan(str(spot.root), notes=str(notes)))
    assert ended.code == 0, spot.log
    pairs = (line.split("\t") for line in notes.read_text().splitlines())
    return Counter((role, step) for role, step in pairs if HARNESS not in step)


def kill_parents(root: Path) -> Iterator[Row]:
    """The process that searches."""
    for (role, step), count in note_steps(root).items():
        if role == "parent":
            yield _row("parent killed", root, Plan("", role, step), count, _kill_parent)


def kill_children(root: Path) -> Iterator[Row]:
    """The runner, the build server, and its builds."""
    for (role, step), count in note_steps(root).items():
        if role != "parent":
            yield _row("child killed", root, Plan("", role, step), count, _kill_child)


Attempt = Callable[[trial.Spot, Plan], tuple[str, list[str]]]


def _row(group: str, root: Path, plan: Plan, count: int, attempt: Attempt) -> Row:
    outcomes: list[str] = []
    problems: list[str] = []
    # Every build is a process of its own, with steps that come once.
    for occurrence in sorted({1, 1 if plan.role == "build" else count}):
        number = sum(1 for _ in root.iterdir())
        spot = trial.Spot(root / f"{group.replace(' ', '-')}-{number}")
        marker = str(spot.root / "struck")
        own = Plan(str(spot.root), plan.role, plan.point, occurrence, marker)
        outcome, found = attempt(spot, own)
        outcomes.append(outcome)
        problems += [f"occurrence {occurrence}: {problem}" for problem in found]
    label = plan.point if plan.role == "parent" else f"{plan.role}: {plan.point}"
    text = "; ".join(dict.fromkeys(outcomes))
    return Row(group, label, text, tuple(problems), len(outcomes))


def _kill_parent(spot: trial.Spot, plan: Plan) -> tuple[str, list[str]]:
    ended = trial.in_fork(spot, trial.search, plan)
    problems = [*trial.all_gone(spot), *trial.find_losses(spot)]
    kept = len(spot.notes.read_text().splitlines()) if spot.notes.exists() else 0
    if not Path(plan.marker).exists():
        return "the step was not reached again", problems
    if ended.code != -9:
        problems.append(f"it ended with {ended.code} instead of being killed")
    problems += _finish(spot)
    return f"the next search ends well; all {kept} records kept before are there", problems


def _finish(spot: trial.Spot) -> list[str]:
    """Search again, undisturbed; what is not as it should be."""
    ended = trial.in_fork(spot, trial.search)
    return [*judge(spot, ended, most_failed=0), *leftovers(spot)]


def _kill_child(spot: trial.Spot, plan: Plan) -> tuple[str, list[str]]:
    ended = trial.in_fork(spot, trial.search, plan)
    problems = [*judge(spot, ended, most_failed=1), *leftovers(spot)]
    if not Path(plan.marker).exists():
        return "the step was not reached again", problems
    verdicts = {} if ended.report is None else ended.report["verdicts"]
    failed = [verdict for verdict in verdicts.values() if verdict not in TIMED]
    cost = f"one candidate is {failed[0]}" if failed else "no candidate fails"
    return f"the search ends well; {cost}", problems


def judge(spot: trial.Spot, ended: trial.Ended, most_failed: int) -> list[str]:
    """What is wrong with a search that should have ended well."""
    if ended.report is None:
        return [f"it ended with {ended.code}: {spot.log[-400:]}"]
    report, problems = ended.report, list[str]()
    if not report["is_right"]:
        problems.append("the kernel's result is wrong")
    if not report["is_measured"]:
        problems.append(f"nothing was measured: {report['problem']}")
    verdicts = report["verdicts"]
    failed = [f"{size} is {v}" for size, v in verdicts.items() if v not in TIMED]
    problems += failed if len(failed) > most_failed else []
    problems += [f"{size} was not tried" for size in spot.sizes if str(size) not in verdicts]
    return problems


def leftovers(spot: trial.Spot) -> list[str]:
    """Processes, files and tracebacks that should not be there when all has ended."""
    problems = [*trial.all_gone(spot), *trial.find_losses(spot), *trial.find_litter(spot)]
    if "Traceback" in spot.log:
        problems.append(f"a traceback: {spot.log[-300:]}")
    return problems
