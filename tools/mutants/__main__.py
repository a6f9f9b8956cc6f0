"""``python -m tools.mutants``: every mutant must be killed by its tests of the short run.

The tests pass on the source as it is, or nothing is tried.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

from tools.mutants.catalogue import MUTANTS
from tools.mutants.mutant import Mutant, find_file, locate_test, read_source
from tools.mutants.table import write_table
from tools.mutants.trial import Copy, Verdict

LIMIT_S = 600.0
"""Far more than the tests of one mutant take, even on a busy machine."""
LIMIT_OF_ALL_S = 3600.0


def main() -> int:
    """Try the chosen mutants; 1 if one survives."""
    options = _parse()
    if options.write:
        write_table(MUTANTS)
        return 0
    chosen = [mutant for mutant in MUTANTS if options.only in f"{mutant.area}: {mutant.name}"]
    texts = read_source()
    for mutant in chosen:
        find_file(mutant, texts)
    with tempfile.TemporaryDirectory(prefix="tilesmith-mutants-") as folder:
        copies = _make_copies(Path(folder), options.jobs)
        if not options.unchecked and not _passes_unchanged(chosen, copies):
            return 1
        with ThreadPoolExecutor(options.jobs) as pool:
            verdicts = list(pool.map(lambda mutant: _try(mutant, copies, options.all), chosen))
    survivors = [mutant for mutant, verdict in zip(chosen, verdicts) if not verdict.is_killed]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants are killed")
    return 1 if survivors else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="those with this text in `area: name`")
    parser.add_argument("--jobs", type=int, default=2, help="how many are tried at once")
    parser.add_argument("--all", action="store_true", help="try survivors on the whole short run")
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests unchanged")
    parser.add_argument("--write", action="store_true", help="write the table of CONTRIBUTING.md")
    return parser.parse_args()


def _make_copies(folder: Path, count: int) -> Queue[Copy]:
    copies: Queue[Copy] = Queue()
    for number in range(count):
        place = folder / str(number)
        place.mkdir()
        copies.put(Copy(place))
    return copies


def _passes_unchanged(chosen: list[Mutant], copies: Queue[Copy]) -> bool:
    tests = sorted({locate_test(test) for mutant in chosen for test in mutant.tests})
    copy = copies.get()
    verdict = copy.run_tests(tests, LIMIT_OF_ALL_S)
    copies.put(copy)
    failure = verdict.killer or verdict.problem
    print(f"{len(tests)} tests on the source as it is: {failure or 'all pass'}", flush=True)
    return not failure


def _try(mutant: Mutant, copies: Queue[Copy], is_thorough: bool) -> Verdict:
    copy = copies.get()
    try:
        verdict = copy.try_mutant(mutant, list(map(locate_test, mutant.tests)), LIMIT_S)
        if is_thorough and not verdict.is_killed:
            verdict = copy.try_mutant(mutant, ["tests"], LIMIT_OF_ALL_S)
    finally:
        copies.put(copy)
    outcome = verdict.killer or verdict.problem or "SURVIVES"
    print(f"{verdict.seconds:5.0f} s  {mutant.area}: {mutant.name}: {outcome}", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main())
