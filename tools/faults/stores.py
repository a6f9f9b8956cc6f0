"""Files of the cache: cut at every byte, changed at every byte, writers killed at every step.

No search is needed for these: what writes and what reads them is called directly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.store.samples import KEY, config, other, timed
from tilesmith.disk.entries import ObjectCache, object_key
from tilesmith.store.journal import Journal
from tilesmith.store.winners import Winners
from tilesmith.team.exchange import pull, push
from tilesmith.team.shared_folder import SharedFolder
from tools.faults import search as trial
from tools.faults.points import Plan
from tools.faults.rows import Row

CUT = "files cut or changed"
KILLED = "writers killed"
CONTENT = bytes(range(64))
OBJECT = object_key(["an object"])
HARNESS = "report-"


def damage_files(root: Path) -> Iterator[Row]:
    """Each kind of file, at each of its bytes."""
    yield _cut_journal(root / "journal")
    yield _cut_winners(root / "winners")
    yield from _damage_object(root / "object")
    yield from _damage_team(root / "team")


def _cut_journal(root: Path) -> Row:
    journal = Journal(root, KEY)
    for number in range(3):
        journal.append(timed(number))
    whole = journal.path.read_bytes()
    problems: list[str] = []
    for end in range(len(whole) + 1):
        journal.path.write_bytes(whole[:end])
        wanted = {config(n) for n, line_end in enumerate(_line_ends(whole)) if line_end <= end}
        if set(Journal(root, KEY).recall()) != wanted:
            problems.append(f"cut at {end}: lines that were whole are not read")
        Journal(root, KEY).append(timed(7))
        if set(Journal(root, KEY).recall()) != {*wanted, config(7)}:
            problems.append(f"cut at {end}: the next measurement is lost")
    text = "every whole line is read, and so is the one that is written next"
    return Row(CUT, "journal cut at every byte", text, tuple(problems), len(whole) + 1)


def _line_ends(content: bytes) -> list[int]:
    """Where each line ends; what lacks only its newline says all."""
    return [position for position, byte in enumerate(content) if byte == ord("\n")]


def _cut_winners(root: Path) -> Row:
    winners = Winners(root)
    winners.commit(KEY, config(1), 1.5)
    path = winners.path(KEY.kernel)
    whole, problems = path.read_bytes(), list[str]()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        found = Winners(root).lookup(KEY)
        # Without its last newline it is whole.
        if (found is not None) != (end == len(whole) - 1):
            problems.append(f"cut at {end}: {found}")
        Winners(root).commit(other(arguments="x"), config(2), 2.0)
        if Winners(root).lookup(other(arguments="x")) is None:
            problems.append(f"cut at {end}: the next winner is lost")
        damaged = path.with_suffix(".damaged")
        if end < len(whole) - 1 and damaged.read_bytes() != whole[:end]:
            problems.append(f"cut at {end}: what is left of the file is lost")
    text = "the file counts as missing, is put aside, and the next winner is kept"
    return Row(CUT, "winners cut at every byte", text, tuple(problems), len(whole))


def _damage_object(root: Path) -> Iterator[Row]:
    cache = ObjectCache(root)
    cache.get(OBJECT, lambda: CONTENT)
    whole = cache.path(OBJECT).read_bytes()
    cut = [whole[:end] for end in range(len(whole))]
    changed = [bytes([*whole[:n], whole[n] ^ 1, *whole[n + 1 :]]) for n in range(len(whole))]
    for name, contents in (("cut", cut), ("changed", changed)):
        problems: list[str] = []
        for number, content in enumerate(contents):
            cache.path(OBJECT).write_bytes(content)
            made: list[int] = []
            found = cache.get(OBJECT, lambda made=made: made.append(1) or CONTENT)
            if found != CONTENT or not made or cache.path(OBJECT).read_bytes() != whole:
                problems.append(f"at byte {number}: it was not made again and mended")
        text = "it is made again and mended"
        yield Row(CUT, f"cached object {name} at every byte", text, tuple(problems), len(contents))


def _damage_team(root: Path) -> Iterator[Row]:
    shared = SharedFolder(str(root / "shared"))
    Winners(root / "theirs").commit(KEY, config(1), 1.5)
    Journal(root / "theirs", KEY).append(timed(1))
    push(root / "theirs", shared, None)
    for path in sorted((root / "shared").rglob("*-*.json")):
        whole, problems = path.read_bytes(), list[str]()
        for end in range(len(whole)):
            path.write_bytes(whole[:end])
            found = pull(root / "ours", shared, None)
            is_named = [path.name in line for line in found.refused] == [True]
            if not is_named:
                problems.append(f"cut at {end}: {found}")
        path.write_bytes(whole)
        kind = path.name.partition("-")[0]
        text = "it is refused and named; all else is taken"
        yield Row(CUT, f"team's {kind} cut at every byte", text, tuple(problems), len(whole))


def kill_writers(root: Path) -> Iterator[Row]:
    """Whatever writes files of the cache, killed at each of its steps."""
    for name, (before, write, _) in WRITERS.items():
        spot = trial.Spot(root / f"{name}-steps")
        before(spot)
        notes = spot.root / "steps"
        trial.in_fork(spot, write, Plan(str(spot.root), notes=str(notes)))
        steps = Counter(line.split("\t")[1] for line in notes.read_text().splitlines())
        for number, (step, count) in enumerate(steps.items()):
            if HARNESS in step:
                continue
            for occurrence in sorted({1, count}):
                place = root / f"{name}-{number}-{occurrence}"
                yield _kill_writer(name, place, Plan("", "parent", step, occurrence))


def _kill_writer(name: str, root: Path, plan: Plan) -> Row:
    before, write, check = WRITERS[name]
    spot = trial.Spot(root)
    before(spot)
    marker = root / "struck"
    own = Plan(str(root), plan.role, plan.point, plan.occurrence, str(marker))
    ended = trial.in_fork(spot, write, own)
    problems = [] if ended.code == -9 else [f"it ended with {ended.code}: {spot.log[-200:]}"]
    problems += check(spot, is_done=False)
    again = trial.in_fork(spot, write)
    problems += [] if again.code == 0 else [f"the next one ended with {again.code}: {spot.log}"]
    problems += check(spot, is_done=True)
    text = "what was there is there; the next writer ends well"
    return Row(KILLED, f"{name}: {plan.point} ({plan.occurrence})", text, tuple(problems))


def _has_old_winner(spot: trial.Spot) -> None:
    Winners(_cache(spot)).commit(KEY, config(1), 1.5)


def _cache(spot: trial.Spot) -> Path:
    assert spot.cache is not None
    return spot.cache


def _commit(spot: trial.Spot) -> dict[str, Any]:
    Winners(_cache(spot)).commit(other(arguments="x"), config(2), 2.0)
    return {}


def _check_winners(spot: trial.Spot, *, is_done: bool) -> list[str]:
    winners = Winners(_cache(spot))
    problems = [] if winners.lookup(KEY) else ["the old winner is lost"]
    if is_done:
        problems += [] if winners.lookup(other(arguments="x")) else ["the new winner is lost"]
        problems += trial.find_litter(spot)
    return problems


def _has_full_journal(spot: trial.Spot) -> None:
    journal = Journal(_cache(spot), KEY)
    for number in range(3):
        journal.append(timed(number))


def _append(spot: trial.Spot) -> dict[str, Any]:
    Journal(_cache(spot), KEY, max_bytes=1000).append(timed(3))
    return {}


def _check_journal(spot: trial.Spot, *, is_done: bool) -> list[str]:
    known = set(Journal(_cache(spot), KEY).recall())
    wanted = {config(number) for number in range(3)} | ({config(3)} if is_done else set())
    return [] if wanted <= known else [f"{len(wanted - known)} measurements are lost"]


def _store_object(spot: trial.Spot) -> dict[str, Any]:
    assert ObjectCache(_cache(spot)).get(OBJECT, lambda: CONTENT) == CONTENT
    return {}


def _check_object(spot: trial.Spot, *, is_done: bool) -> list[str]:
    made: list[int] = []
    found = ObjectCache(_cache(spot)).get(OBJECT, lambda: made.append(1) or CONTENT)
    return [] if found == CONTENT and not (is_done and made) else ["a wrong object is found"]


def _shared(spot: trial.Spot) -> SharedFolder:
    return SharedFolder(str(spot.root / "shared"))


def _has_team(spot: trial.Spot) -> None:
    theirs = spot.root / "theirs"
    Winners(theirs).commit(KEY, config(1), 1.5)
    Journal(theirs, KEY).append(timed(1))
    push(theirs, _shared(spot), None)
    Winners(_cache(spot)).commit(other(arguments="x"), config(2), 2.0)
    Journal(_cache(spot), other(arguments="x")).append(timed(2))


def _push(spot: trial.Spot) -> dict[str, Any]:
    push(_cache(spot), _shared(spot), None)
    return {}


def _check_pushed(spot: trial.Spot, *, is_done: bool) -> list[str]:
    found = pull(spot.root / f"reader-{is_done}", _shared(spot), None)
    wanted = 2 if is_done else 1
    is_short = found.winners < wanted or found.measurements < wanted
    lost = [f"of {wanted} entries only {found} are there"] if is_short else []
    return [*found.refused, *lost]


def _pull(spot: trial.Spot) -> dict[str, Any]:
    pull(_cache(spot), _shared(spot), None)
    return {}


def _check_pulled(spot: trial.Spot, *, is_done: bool) -> list[str]:
    winners = Winners(_cache(spot))
    problems = [] if winners.lookup(other(arguments="x")) else ["our own winner is lost"]
    own = Journal(_cache(spot), other(arguments="x")).recall()
    problems += [] if config(2) in own else ["our own measurement is lost"]
    if is_done:
        problems += [] if winners.lookup(KEY) else ["their winner did not come"]
        known = Journal(_cache(spot), KEY).recall()
        problems += [] if config(1) in known else ["their measurement did not come"]
        problems += trial.find_litter(spot)
    return problems


Writer = tuple[Callable[[trial.Spot], Any], trial.Body, Callable[..., list[str]]]
WRITERS: dict[str, Writer] = {
    "winner": (_has_old_winner, _commit, _check_winners),
    "measurement, journal full": (_has_full_journal, _append, _check_journal),
    "object": (lambda spot: None, _store_object, _check_object),
    "push": (_has_team, _push, _check_pushed),
    "pull": (_has_team, _pull, _check_pulled),
}
"""What is there before, what is done, what must be there afterwards."""
