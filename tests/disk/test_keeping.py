"""A folder of code stays below its limit; what was used last stays."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from tilesmith.disk import entries
from tilesmith.disk.entries import SPARED_S, ObjectCache, cut, keep_small, note_use, object_key

SIZE = 1000


def fill(folder: Path, count: int, *, age_s: float = 2 * SPARED_S) -> list[Path]:
    """Files, the oldest first."""
    paths = [folder / f"{number:02}.o" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(SIZE))
        used = time.time() - age_s - count + number
        os.utime(path, (used, used))
    return paths


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_a_small_folder_is_left_alone(tmp_path: Path):
    fill(tmp_path, 10)
    assert cut(tmp_path, 10 * SIZE) == 0
    assert len(left(tmp_path)) == 10


def test_those_not_used_for_longest_go_first(tmp_path: Path):
    paths = fill(tmp_path, 11)
    note_use(paths[0])
    assert cut(tmp_path, 10 * SIZE) == 3
    assert left(tmp_path) == ["00.o", *(f"{number:02}.o" for number in range(4, 11))]


def test_what_was_used_just_now_stays(tmp_path: Path):
    fill(tmp_path, 20, age_s=0)
    assert cut(tmp_path, SIZE) == 0
    assert len(left(tmp_path)) == 20


def test_only_one_process_cuts(tmp_path: Path):
    fill(tmp_path, 11)
    with FileLock(tmp_path / ".lock"):
        assert cut(tmp_path, 10 * SIZE) == 0
    assert cut(tmp_path, 10 * SIZE) == 3


def test_a_file_that_another_removed_is_no_error(tmp_path: Path, monkeypatch):
    fill(tmp_path, 11)
    found = entries._entries(tmp_path)
    monkeypatch.setattr(entries, "_entries", lambda _: found)
    (tmp_path / "00.o").unlink()
    assert cut(tmp_path, 10 * SIZE) == 3
    assert len(left(tmp_path)) == 8


def test_one_name_in_32_looks(tmp_path: Path):
    digests = [f"{number:02x}{'0' * 14}" for number in range(256)]
    looking = []
    for digest in digests:
        fill(tmp_path, 11)
        keep_small(tmp_path, digest, 10 * SIZE)
        if len(left(tmp_path)) < 11:
            looking.append(digest)
    assert looking == digests[:8]


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path):
    keep_small(tmp_path / "gone", "00", 1)


def test_files_of_a_clock_that_was_ahead_do_not_stay_for_ever(tmp_path: Path):
    old = fill(tmp_path, 6)
    ahead = [tmp_path / f"ahead-{number}.o" for number in range(6)]
    for path in ahead:
        path.write_bytes(bytes(SIZE))
        os.utime(path, (time.time() + 1e8, time.time() + 1e8))
    note_use(ahead[0])
    assert cut(tmp_path, 10 * SIZE) == 4
    assert left(tmp_path) == sorted([ahead[0].name, *(path.name for path in old), *_last(ahead)])


def _last(ahead: list[Path]) -> list[str]:
    """Of those that nothing is known of any may stay; names decide."""
    return [sorted(path.name for path in ahead[1:])[-1]]


def test_users_of_a_folder_that_is_cut_meanwhile_get_what_they_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Everything may go at any time, even what was stored just now: then it is made again."""
    monkeypatch.setattr(entries, "SPARED_S", -1.0)
    cache, num_users, num_keys = ObjectCache(tmp_path), 4, 25
    keys = [object_key([str(number)]) for number in range(num_keys)]

    def use(user: int) -> int:
        """How many objects were other than asked for."""
        wrong = 0
        for turn in range(4 * num_keys):
            key = keys[(turn * (2 * user + 1)) % num_keys]
            wrong += cache.get(key, lambda key=key: key.encode() * 40) != key.encode() * 40
            if turn % 3 == user % 3:
                cut(cache.folder, 8 * 40 * 64)
        return wrong

    with ThreadPoolExecutor(num_users) as pool:
        assert list(pool.map(use, range(num_users))) == [0] * num_users
    cut(cache.folder, 8 * 40 * 64)
    assert sum(path.stat().st_size for path in cache.folder.iterdir()) <= 8 * 40 * 64
    assert {path.suffix for path in cache.folder.iterdir() if path.name != ".lock"} == {".o"}
