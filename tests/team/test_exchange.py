"""Winners and measurements between a cache folder and a shared place, by several kinds of URL."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tilesmith.schedule.config import Config
from tilesmith.store.journal import Journal
from tilesmith.store.key import StoreKey
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.store.winners import Winner, Winners
from tilesmith.team import exchange
from tilesmith.team.exchange import (
    MAX_LINES,
    diff,
    pack_lines,
    pack_winner,
    prune,
    pull,
    push,
    settle_time,
)
from tilesmith.team.shared_folder import FOLDER, SharedFolder, TeamCacheError, object_name

KEY = StoreKey(
    "softmax", "s", "p", "f", "tile_m=64; x:f32", "x: float32[64, 8]", "backend=auto", "cuda:90",
    "a GPU", "cold", (("torch", "2.13"),),
)  # fmt: skip
CONFIG = Config(block_sizes=[64])
YEAR = timedelta(days=365)


def key(**changes: Any) -> StoreKey:
    return replace(KEY, **changes)


def measure(folder: Path, config: Config, ms: float, used: StoreKey = KEY) -> None:
    outcome = Outcome(Candidate(config), Verdict.OK, median_ms=ms, low_ms=ms, high_ms=ms)
    Journal(folder, used).append(outcome)


def remember(folder: Path, config: Config, ms: float, used: StoreKey = KEY) -> Winner:
    measure(folder, config, ms, used)
    return Winners(folder).commit(used, config, ms)


@pytest.fixture(params=["folder", "file", "memory"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> SharedFolder:
    urls = {
        "folder": str(tmp_path / "shared"),
        "file": f"file://{tmp_path}/shared",
        "memory": f"memory://{tmp_path.name}",
    }
    return SharedFolder(urls[request.param])


def test_what_one_pushes_another_pulls(shared: SharedFolder, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    remember(ours, CONFIG, 0.5)
    done = push(ours, shared, None)
    assert (done.winners, done.measurements, done.known) == (1, 1, 0)
    done = push(ours, shared, None)
    assert (done.winners, done.measurements, done.known) == (0, 0, 1)
    taken = pull(theirs, shared, "softmax")
    assert (taken.winners, taken.measurements, taken.refused) == (1, 1, [])
    found = Winners(theirs).lookup(KEY)
    assert found is not None
    assert (found.config, found.median_ms) == (CONFIG, 0.5)
    assert found.note.endswith(f"; from {shared.url}")
    assert Journal(theirs, KEY).recall()[CONFIG].median_ms == 0.5
    again = pull(theirs, shared, None)
    assert (again.winners, again.measurements, again.known) == (0, 0, 1)
    # What came from others is theirs: pushing it again would hide where it was found.
    assert push(theirs, shared, None).winners == 0


def test_only_new_lines_of_a_journal_are_pushed(shared: SharedFolder, tmp_path: Path) -> None:
    measure(tmp_path, CONFIG, 0.5)
    assert push(tmp_path, shared, None).measurements == 1
    measure(tmp_path, Config(block_sizes=[32]), 0.7)
    assert push(tmp_path, shared, None).measurements == 1
    assert pull(tmp_path / "other", shared, None).measurements == 2


def test_what_is_there_under_another_name_of_the_place_is_not_pushed_again(tmp_path: Path) -> None:
    measure(tmp_path, CONFIG, 0.5)
    place = tmp_path / "team"
    assert push(tmp_path, SharedFolder(str(place)), None).measurements == 1
    assert push(tmp_path, SharedFolder(place.as_uri()), None).measurements == 0


def test_a_torn_line_at_the_end_waits_for_its_rest(shared: SharedFolder, tmp_path: Path) -> None:
    measure(tmp_path, CONFIG, 0.5)
    measure(tmp_path, CONFIG, 0.7)
    (path,) = (tmp_path / "tuning" / "journal").glob("*.jsonl")
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    assert push(tmp_path, shared, None).measurements == 1
    path.write_bytes(whole)
    assert push(tmp_path, shared, None).measurements == 1


def test_a_line_torn_here_does_not_swallow_what_is_pulled(tmp_path: Path) -> None:
    shared, ours = SharedFolder(str(tmp_path / "shared")), tmp_path / "ours"
    measure(tmp_path / "theirs", CONFIG, 1.0)
    push(tmp_path / "theirs", shared, None)
    measure(ours, Config(block_sizes=[32]), 2.0)
    journal = Journal(ours, KEY)
    journal.path.write_bytes(journal.path.read_bytes() + b'{"schema":1,"time":"2026')
    assert pull(ours, shared, None).measurements == 1
    assert set(journal.recall()) == {CONFIG, Config(block_sizes=[32])}


def test_a_lock_that_is_never_given_back_ends_an_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, ours = SharedFolder(str(tmp_path / "shared")), tmp_path / "ours"
    measure(tmp_path / "theirs", CONFIG, 1.0)
    push(tmp_path / "theirs", shared, None)
    measure(ours, Config(block_sizes=[32]), 2.0)
    monkeypatch.setattr("tilesmith.team.exchange.LOCK_TIMEOUT_S", 0.01)
    lock = FileLock(f"{Journal(ours, KEY).path}.lock", is_singleton=False)
    with lock, pytest.raises(OSError, match="lock"):
        pull(ours, shared, None)
    with FileLock(ours / "tuning" / ".team.lock"), pytest.raises(OSError, match="lock"):
        push(ours, shared, None)


def test_what_was_measured_here_stays(shared: SharedFolder, tmp_path: Path) -> None:
    remember(tmp_path / "a", CONFIG, 0.01)
    push(tmp_path / "a", shared, None)
    own = Config(block_sizes=[128])
    remember(tmp_path / "b", own, 0.6)
    assert pull(tmp_path / "b", shared, None).winners == 0
    found = Winners(tmp_path / "b").lookup(KEY)
    assert found is not None
    assert found.config == own


def test_neighbours_start_a_search(shared: SharedFolder, tmp_path: Path) -> None:
    """Another shape of the kernel, and an older toolchain."""
    near = key(shapes="tile_m=128; x:f32", arguments="x: float32[128, 8]", program="q")
    old = key(toolchain=(("torch", "2.12"),))
    remember(tmp_path / "a", Config(block_sizes=[256]), 0.4, near)
    remember(tmp_path / "a", Config(block_sizes=[512]), 0.3, old)
    push(tmp_path / "a", shared, None)
    pull(tmp_path / "b", shared, None)
    assert Config(block_sizes=[256]) in Journal(tmp_path / "b", KEY).similar()
    stale = Winners(tmp_path / "b").lookup(KEY)
    assert stale is not None
    assert (stale.is_stale, stale.config) == (True, Config(block_sizes=[512]))


def test_writers_at_once_lose_nothing(shared: SharedFolder, tmp_path: Path) -> None:
    count, errors = 8, list[Exception]()

    def write(number: int) -> None:
        folder = tmp_path / f"writer{number}"
        try:
            for shape in range(4):
                used = key(arguments=f"x: float32[{number}, {shape}]")
                remember(folder, Config(block_sizes=[2**number]), 1.0 + number, used)
                push(folder, SharedFolder(shared.url), None)
        except Exception as error:  # shown by the assertion
            errors.append(error)

    threads = [threading.Thread(target=write, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    done = pull(tmp_path / "all", shared, None)
    assert (done.winners, done.measurements, done.refused) == (4 * count, 4 * count, [])


def put(shared: SharedFolder, name: str, content: bytes, kernel: str = "softmax") -> None:
    files = shared._files
    files.makedirs(f"{shared._root}/{kernel}", exist_ok=True)
    files.pipe_file(f"{shared._root}/{kernel}/{name}", content)


GOOD = pack_winner(Winner(KEY, CONFIG, 0.5, time="2026-01-01T00:00:00Z"))


def winner_with(**changes: Any) -> bytes:
    values = json.loads(GOOD)
    (entry,) = values["winners"].values()
    entry.update(changes)
    return json.dumps(values).encode()


def named(content: bytes, kind: str = "winner") -> tuple[str, bytes]:
    return object_name(kind, content), content


LINE = {"schema": 1, "kernel": "softmax", "family": "0" * 16, "lines": []}
HOSTILE = [
    (("winner-" + "0" * 32 + ".json", GOOD),
     "its content is not the one that its name was made of"),
    (named(b"not json"), "line 1, column 1: not JSON: Expecting value"),
    (named(b"\xff\xfe"), "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    (named(b"[" * 100_000), "too deeply nested"),
    (named(winner_with(config={"block_sizes": {"a": 1}})),
     "winners.{digest}.config.block_sizes: expected a number, a string, true, false, null or a "
     "list, found {{'a': 1}}"),
    (named(winner_with(code="import os")),
     "winners.{digest}: expected only the fields key, config, median_ms, spread, note, time, "
     "found 'code'"),
    (named(winner_with(median_ms=0)), "it took no time at all"),
    (named(winner_with(median_ms=-1)),
     "winners.{digest}.median_ms: expected a number >= 0, found -1"),
    (named(b'{"schema": 1, "winners": {}}'), "it has 0 winners, not one"),
    (named(json.dumps({**LINE, "schema": 9}).encode(), "journal"), "schema: expected 1, found 9"),
    (named(json.dumps({**LINE, "kernel": "other"}).encode(), "journal"),
     "it is of another kernel, 'other'"),
    (named(json.dumps({**LINE, "family": "../../evil"}).encode(), "journal"),
     "family: expected 16 digits"),
    (named(json.dumps({**LINE, "lines": [{"schema": 1}]}).encode(), "journal"),
     "line 1 is no measurement"),
    (named(json.dumps({**LINE, "lines": [0] * (MAX_LINES + 1)}).encode(), "journal"),
     "lines: expected a list of at most 2000"),
    (named(b'{"__reduce__": "os.system"}', "journal"),
     "expected an object with the fields family, kernel, lines, schema"),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "reason"), HOSTILE, ids=[reason[:30] for _, reason in HOSTILE])
def test_hostile_and_damaged_entries_are_refused_and_named(
    entry: tuple[str, bytes], reason: str, tmp_path: Path
) -> None:
    shared = SharedFolder(str(tmp_path / "shared"))
    put(shared, *named(GOOD))
    put(shared, *entry)
    done = pull(tmp_path / "here", shared, None)
    (refused,) = done.refused
    digest = KEY.digest[:12]
    place = f"softmax/{entry[0]}"
    found = refused.removeprefix(place).lstrip(",: ")
    assert refused.startswith(place)
    assert found == reason.replace("{digest}", digest).replace("{{", "{").replace("}}", "}")
    assert done.winners == 1  # the good one beside it
    assert not list((tmp_path / "here").rglob("*evil*"))


def test_an_object_of_another_kernel_or_of_any_size_is_refused(tmp_path: Path) -> None:
    shared = SharedFolder(str(tmp_path / "shared"))
    put(shared, *named(GOOD), kernel="matmul")
    big = b" " * (5 << 20)
    put(shared, *named(big))
    done = pull(tmp_path / "here", shared, None)
    assert sorted(done.refused) == [
        f"matmul/{object_name('winner', GOOD)}: it is of another kernel, 'softmax'",
        f"softmax/{object_name('winner', big)}: it has 5,242,880 bytes, more than 4,194,304",
    ]
    assert done.winners == 0


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    shared = SharedFolder(str(tmp_path / "shared"))
    put(shared, "README.txt", b"hello")
    put(shared, "winner-xyz.json", b"{}")
    put(shared, "winner-" + "0" * 32 + ".json.part", b"{}")
    done = pull(tmp_path / "here", shared, None)
    assert (done.winners, done.refused) == (0, [])
    assert prune(shared, YEAR) == []


def test_a_time_in_the_future_is_told_and_taken_as_now(tmp_path: Path) -> None:
    shared = SharedFolder(str(tmp_path / "shared"))
    ahead = datetime.now(timezone.utc) + timedelta(days=30, minutes=5)
    content = winner_with(time=ahead.strftime("%Y-%m-%dT%H:%M:%SZ"))
    put(shared, *named(content))
    done = pull(tmp_path / "here", shared, None)
    place = f"softmax/{object_name('winner', content)}"
    assert done.notes == [
        f"{place}: it was found 30 days from now: a clock is wrong; taken as of now"
    ]
    (winner,) = Winners(tmp_path / "here").entries()
    assert winner.time <= datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    # A clock that is a little ahead is nobody's business.
    near = datetime.now(timezone.utc) + timedelta(minutes=30)
    kept = Winner(KEY, CONFIG, 0.5, time=near.strftime("%Y-%m-%dT%H:%M:%SZ"))
    assert settle_time(kept) == (kept, "")
    assert settle_time(replace(kept, time="yesterday"))[1] == (
        "its time 'yesterday' is none: taken as now"
    )


def test_a_full_store_says_what_was_written(tmp_path: Path) -> None:
    shared = SharedFolder(str(tmp_path / "shared"))
    remember(tmp_path, CONFIG, 0.5)
    remember(tmp_path, CONFIG, 0.5, key(arguments="x: float32[2, 8]"))
    size = len(pack_winner(Winners(tmp_path).entries()[0]))
    with pytest.raises(TeamCacheError) as caught:
        push(tmp_path, shared, None, limit=size + 10)
    text = str(caught.value)
    assert text.startswith(f"{shared.url} is full: it would hold ")
    assert text.endswith(
        f" bytes, its limit is {size + 10:,}; `tilesmith cache prune` makes room, --limit allows "
        "more\n1 winners and 0 measurements were written before; nothing here was changed: push "
        "again later"
    )
    done = push(tmp_path, shared, None)
    assert (done.winners, done.known, done.measurements) == (1, 1, 2)


def test_what_is_there_takes_no_room_again_and_all_journals_count(tmp_path: Path) -> None:
    """A store that was just full refused what it had; journals were counted one by one."""
    shared = SharedFolder(str(tmp_path / "shared"))
    for number in range(3):
        remember(tmp_path, CONFIG, 0.5, key(kernel=f"softmax{number}"))
    push(tmp_path, shared, None)
    held = sum(entry.nbytes for entry in shared.all_entries())
    again = push(tmp_path, shared, None, limit=held)
    assert (again.winners, again.known) == (0, 3)
    other = SharedFolder(str(tmp_path / "other"))
    with pytest.raises(TeamCacheError, match="is full") as caught:
        push(tmp_path, other, None, limit=held - 1)
    assert "3 winners and 2 measurements were written before" in str(caught.value)


def test_a_disk_without_room_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedFolder(str(tmp_path / "shared"))
    remember(tmp_path, CONFIG, 0.5)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shared._files, "pipe_file", fail)
    with pytest.raises(TeamCacheError) as caught:
        push(tmp_path, shared, None)
    assert str(caught.value).splitlines()[0] == f"{shared.url}: No space left on device"
    assert not list((tmp_path / "shared").rglob("*.part"))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_by_http_entries_are_read_and_not_written(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    remember(tmp_path / "ours", CONFIG, 0.5)
    push(tmp_path / "ours", SharedFolder(str(tmp_path / "shared")), None)
    with served(tmp_path / "shared") as url:
        done = pull(tmp_path / "here", SharedFolder(url), None)
        assert (done.winners, done.measurements, done.refused) == (1, 1, [])
        remember(tmp_path / "here", CONFIG, 0.7, key(arguments="x: float32[2, 8]"))
        with pytest.raises(TeamCacheError, match="can be read, not written"):
            push(tmp_path / "here", SharedFolder(url), None)


def test_places_that_cannot_be_reached() -> None:
    with pytest.raises(TeamCacheError) as caught:
        SharedFolder("gopher://old/cache")
    assert str(caught.value).startswith("'gopher://old/cache' is no place for a cache: Protocol ")


def test_differences_are_told_by_side(tmp_path: Path) -> None:
    shared = SharedFolder(str(tmp_path / "shared"))
    remember(tmp_path / "a", CONFIG, 0.5)
    remember(tmp_path / "a", CONFIG, 0.7, key(arguments="x: float32[2, 8]"))
    push(tmp_path / "a", shared, None)
    remember(tmp_path / "b", Config(block_sizes=[32]), 0.4)
    remember(tmp_path / "b", CONFIG, 0.8, key(arguments="x: float32[4, 8]"))
    lines, summary = diff(tmp_path / "b", shared, None)
    assert lines == [
        "both  softmax(x: float32[64, 8]) on a GPU: 0.4 ms / 0.5 ms",
        "here  softmax(x: float32[4, 8]) on a GPU: 0.8 ms",
        "there softmax(x: float32[2, 8]) on a GPU: 0.7 ms",
    ]
    assert summary.refused == []
    assert diff(tmp_path / "a", shared, None)[0] == []


def test_pruning_takes_damaged_old_and_outdone_objects(tmp_path: Path) -> None:
    shared = SharedFolder(str(tmp_path / "shared"))
    old = winner_with(time="2019-01-01T00:00:00Z")
    damaged = ("winner-" + "0" * 32 + ".json", GOOD)
    put(shared, *damaged)
    put(shared, *named(old))
    for number, ms in enumerate((0.9, 0.5, 0.7)):
        remember(tmp_path / f"w{number}", CONFIG, ms, key(arguments="x: float32[2, 8]"))
        push(tmp_path / f"w{number}", shared, None)
    reasons = {reason for _, reason in prune(shared, YEAR)}
    assert reasons == {
        f"softmax/{damaged[0]}: its content is not the one that its name was made of",
        "it is of 2019-01-01T00:00:00Z",
        "another of the same key is faster",
    }
    left = [entry for entry in shared.all_entries() if entry.kind == "winner"]
    assert len(left) == 1
    pull(tmp_path / "here", shared, None)
    assert [w.median_ms for w in Winners(tmp_path / "here").entries()] == [0.5]
    assert {reason for _, reason in prune(shared, YEAR, limit=0)} == {"there is no room for it"}
    assert list(shared.all_entries()) == []


def test_long_journals_are_several_objects() -> None:
    line = json.dumps({"a": 1})
    objects = list(pack_lines("softmax", "0" * 16, [line] * (MAX_LINES + 1)))
    assert [len(json.loads(content)["lines"]) for content in objects] == [MAX_LINES, 1]
    assert FOLDER == "tilesmith-1"
    assert exchange.MAX_STORE_BYTES == 1 << 30
