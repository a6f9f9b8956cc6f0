"""The team's cache in a real S3 protocol: a server on this machine, and s3fs.

Neither is a dependency: ``pip install s3fs 'moto[server]'`` and ``pytest --full``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from tests.team.test_exchange import CONFIG, key, remember
from tilesmith.store.winners import Winners
from tilesmith.team.exchange import diff, prune, pull, push
from tilesmith.team.shared_folder import FOLDER, SharedFolder, TeamCacheError

s3fs: Any = pytest.importorskip("s3fs")
moto: Any = pytest.importorskip("moto.server")
pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings("default"),  # of those libraries, which are not ours to mend
]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A URL of an empty bucket; its server is found by the variables of AWS's own tools."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    s3fs.S3FileSystem.clear_instance_cache()
    name = f"kernels-{token_hex(6)}"  # all servers of a process share their buckets
    s3fs.S3FileSystem().mkdir(name)
    yield f"s3://{name}/team"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def test_push_pull_diff_and_prune(bucket: str, tmp_path: Path) -> None:
    remember(tmp_path / "ours", CONFIG, 0.5)
    done = push(tmp_path / "ours", SharedFolder(bucket), None)
    assert (done.winners, done.measurements) == (1, 1)
    again = push(tmp_path / "ours", SharedFolder(bucket), None)
    assert (again.winners, again.measurements, again.known) == (0, 0, 1)
    lines, _ = diff(tmp_path / "here", SharedFolder(bucket), None)
    assert len(lines) == 1
    assert lines[0].startswith("there softmax")
    got = pull(tmp_path / "here", SharedFolder(bucket), "softmax")
    assert (got.winners, got.measurements, got.refused) == (1, 1, [])
    (winner,) = Winners(tmp_path / "here").entries()
    assert winner.note.endswith(f"; from {bucket}")
    assert len(prune(SharedFolder(bucket), timedelta(days=365), limit=0)) == 2
    assert list(SharedFolder(bucket).all_entries()) == []


def test_a_damaged_object_is_refused_and_named(bucket: str, tmp_path: Path) -> None:
    remember(tmp_path / "ours", CONFIG, 0.5)
    shared = SharedFolder(bucket)
    push(tmp_path / "ours", shared, None)
    (entry,) = [entry for entry in shared.all_entries() if entry.kind == "winner"]
    s3fs.S3FileSystem().pipe_file(f"{bucket}/{FOLDER}/{entry}", b"{}")
    got = pull(tmp_path / "here", shared, None)
    assert got.refused == [f"{entry}: its content is not the one that its name was made of"]
    assert (got.winners, got.measurements) == (0, 1)


def test_writers_at_once_lose_nothing(bucket: str, tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(4)]
    for number, folder in enumerate(folders):
        for size in range(3):
            used = key(arguments=f"x: float32[{number}, {size}]")
            remember(folder, CONFIG, 0.5, used)
    problems: list[BaseException] = []

    def write(folder: Path) -> None:
        try:
            push(folder, SharedFolder(bucket), None)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=write, args=[folder]) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert pull(tmp_path / "here", SharedFolder(bucket), None).winners == 12


def test_a_bucket_that_is_not_there(bucket: str, tmp_path: Path) -> None:
    remember(tmp_path / "ours", CONFIG, 0.5)
    name = f"nowhere-{token_hex(6)}"
    with pytest.raises(TeamCacheError, match=f"s3://{name}/team: .*bucket does not exist"):
        push(tmp_path / "ours", SharedFolder(f"s3://{name}/team"), None)
    # It made the bucket once: a folder of an object store is a bucket.
    assert not s3fs.S3FileSystem().exists(name)
