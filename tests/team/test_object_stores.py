"""The team's cache in real protocols: servers of S3 and of Google Cloud Storage on this machine.

None is a dependency: ``pip install s3fs 'moto[server]'``, ``pip install gcsfs
gcp-storage-emulator``, and ``pytest --full``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from tests.team.test_exchange import CONFIG, key, remember
from tilesmith.store.winners import Winners
from tilesmith.team.exchange import diff, prune, pull, push
from tilesmith.team.shared_folder import FOLDER, SharedFolder, TeamCacheError

pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings("default"),  # of those libraries, which are not ours to mend
]


@contextmanager
def s3_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The file system of a server, which is found by the variables of AWS's own tools."""
    s3fs: Any = pytest.importorskip("s3fs")
    moto: Any = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    s3fs.S3FileSystem.clear_instance_cache()
    yield s3fs.S3FileSystem()
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@contextmanager
def gs_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The file system of a server, which is found by the variable of Google's own tools."""
    # Asks for a kind of buckets by gRPC, which that server does not speak.
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    gcsfs: Any = pytest.importorskip("gcsfs")
    emulator: Any = pytest.importorskip("gcp_storage_emulator.server")
    conf: Any = pytest.importorskip("fsspec.config").conf
    server = emulator.create_server("127.0.0.1", 0, in_memory=True)
    server.start()
    port = server._api._httpd.server_address[1]
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    for name in ("gs", "gcs"):
        monkeypatch.setitem(conf, name, {"token": "anon"})
    gcsfs.GCSFileSystem.clear_instance_cache()
    yield gcsfs.GCSFileSystem()
    gcsfs.GCSFileSystem.clear_instance_cache()
    server.stop()


SERVERS = {"s3": s3_server, "gs": gs_server}
MISSING = {"s3": "bucket does not exist", "gs": "no such bucket or folder"}
"""What each says of a bucket that is not there."""


@dataclass(frozen=True)
class Bucket:
    """An empty one."""

    files: Any
    protocol: str
    url: str


@pytest.fixture(params=sorted(SERVERS))
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with SERVERS[request.param](monkeypatch) as files:
        name = f"kernels-{token_hex(6)}"  # all servers of a process share their buckets
        files.mkdir(name)
        yield Bucket(files, request.param, f"{request.param}://{name}/team")


@pytest.fixture
def bucket(store: Bucket) -> str:
    return store.url


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


def test_a_damaged_object_is_refused_and_named(store: Bucket, tmp_path: Path) -> None:
    remember(tmp_path / "ours", CONFIG, 0.5)
    shared = SharedFolder(store.url)
    push(tmp_path / "ours", shared, None)
    (entry,) = [entry for entry in shared.all_entries() if entry.kind == "winner"]
    store.files.pipe_file(f"{store.url}/{FOLDER}/{entry}", b"{}")
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


def test_a_bucket_that_is_not_there(store: Bucket, tmp_path: Path) -> None:
    remember(tmp_path / "ours", CONFIG, 0.5)
    name = f"nowhere-{token_hex(6)}"
    url = f"{store.protocol}://{name}/team"
    with pytest.raises(TeamCacheError, match=f"{url}: .*{MISSING[store.protocol]}"):
        push(tmp_path / "ours", SharedFolder(url), None)
    # It made the bucket once: a folder of an object store is a bucket.
    store.files.invalidate_cache()
    assert not store.files.exists(name)
