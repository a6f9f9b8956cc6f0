"""Grades the random programs: how many it takes to find each of forty known compiler bugs.

``python -m tools.fuzz_score [--limit 300] [--seed 0] [--jobs 2] [--log FILE] [names ...]``; exits
with 1 if one is missed. With a log a run that was ended goes on where it was, on the same commit.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzzing.injections import INJECTIONS
from tests.fuzzing.last_injections import LAST_INJECTIONS
from tests.fuzzing.later_injections import LATER_INJECTIONS
from tests.fuzzing.more_injections import MORE_INJECTIONS
from tests.fuzzing.processes import grade_injections


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help="which bugs; all by default")
    parser.add_argument("--limit", type=int, default=300, help="programs to try for each bug")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--log", default="", help="what is known, one line of JSON each")
    options = parser.parse_args(arguments)
    names = options.names or [*INJECTIONS, *MORE_INJECTIONS, *LATER_INJECTIONS, *LAST_INJECTIONS]
    caught = 0
    print(f"{'bug':18} {'programs':>8}  noticed by")
    log = str(Path(options.log).resolve()) if options.log else ""
    for found in grade_injections(names, options.limit, options.seed, jobs=options.jobs, log=log):
        caught += found["is_caught"]
        print(
            f"{found['name']:18} {found['tried']:>8}  {found.get('way', 'not noticed')}", flush=True
        )
    print(f"{caught} of {len(names)} bugs noticed within {options.limit} programs each")
    return 0 if caught == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
