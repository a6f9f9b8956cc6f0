"""A process that writes winners and measurements as fast as it can: FOLDER NAME COUNT."""

from __future__ import annotations

import sys
from zlib import crc32

from tests.store.samples import KEY, other, timed
from tilesmith.store.journal import Journal
from tilesmith.store.winners import Winners


def main(folder: str, name: str, count: str) -> None:
    journal, winners = Journal(folder, KEY), Winners(folder)
    sys.stdin.readline()  # all start together
    for number in range(int(count)):
        journal.append(timed(crc32(f"{name} {number}".encode())))
        outcome = timed(number)
        winners.commit(other(arguments=f"{name} {number}"), outcome.config, outcome.median_ms)


if __name__ == "__main__":
    main(*sys.argv[1:])
