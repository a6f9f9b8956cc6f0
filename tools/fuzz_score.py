"""Grades the random programs: how many it takes to find each of thirty known compiler bugs.

``python -m tools.fuzz_score [--limit 300] [--seed 0] [names ...]``; exits with 1 if one is missed.
"""

from __future__ import annotations

import argparse
import sys

from tests.fuzzing.injections import INJECTIONS
from tests.fuzzing.later_injections import LATER_INJECTIONS
from tests.fuzzing.more_injections import MORE_INJECTIONS
from tests.fuzzing.processes import grade_injections


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help="which bugs; all by default")
    parser.add_argument("--limit", type=int, default=300, help="programs to try for each bug")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    names = options.names or [*INJECTIONS, *MORE_INJECTIONS, *LATER_INJECTIONS]
    caught = 0
    print(f"{'bug':18} {'programs':>8}  noticed by")
    for found in grade_injections(names, options.limit, options.seed):
        caught += found["is_caught"]
        print(
            f"{found['name']:18} {found['tried']:>8}  {found.get('way', 'not noticed')}", flush=True
        )
    print(f"{caught} of {len(names)} bugs noticed within {options.limit} programs each")
    return 0 if caught == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
