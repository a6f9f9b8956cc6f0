"""Objects on disk: whole or absent, shared by processes, never a reason to fail."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from tests.runtime.native.programs import ECHO, artifact, scalar, tensor
from tilesmith.disk.entries import ObjectCache, object_key, write_once
from tilesmith.runtime.native import machine_code
from tilesmith.runtime.native.loader import load_artifact
from tilesmith.runtime.native.machine_code import compile_artifact
from tilesmith.targets import parse_target

CONTENT = bytes(range(256)) * 40


class Maker:
    """Counts how often it had to make the object."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.calls = 0
        self._content = content

    def __call__(self) -> bytes:
        self.calls += 1
        return self._content


def test_an_object_is_made_once(tmp_path: Path):
    make = Maker()
    for _ in range(3):
        assert ObjectCache(tmp_path / "new" / "folder").get("k", make) == CONTENT
    assert make.calls == 1


def test_keys_tell_all_their_parts_apart():
    keys = {object_key(p) for p in (["a", "b"], ["ab"], ["a", "b", ""], ["", "ab"], ["b", "a"])}
    assert len(keys) == 5
    assert object_key(["a", "b"]) == object_key(("a", "b"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda stored: stored[:-1],
        lambda stored: stored + b"x",
        lambda stored: stored[:20],
        lambda stored: b"",
        lambda stored: b"X" + stored[1:],
        lambda stored: stored[:100] + bytes([stored[100] ^ 1]) + stored[101:],
        lambda stored: stored[:60] + bytes([stored[60] ^ 1]) + stored[61:],
        lambda stored: stored[:30] + bytes([stored[30] ^ 1]) + stored[31:],
    ],
    ids=[
        *("short", "long", "head cut", "empty", "other magic", "flipped bit"),
        *("other checksum", "other key"),
    ],
)
def test_a_damaged_entry_is_made_again_and_mended(tmp_path: Path, damage):
    cache, make = ObjectCache(tmp_path), Maker()
    cache.get("k", make)
    path = cache.path("k")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert cache.get("k", make) == CONTENT
    assert make.calls == 2
    assert path.read_bytes() == whole
    assert cache.get("k", make) == CONTENT
    assert make.calls == 2


def test_no_scratch_files_stay_behind(tmp_path: Path):
    ObjectCache(tmp_path).get("k", Maker())
    assert [path.name for path in (tmp_path / "native").iterdir()] == ["k.o"]


def test_a_folder_that_cannot_be_made_means_no_caching(tmp_path: Path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    make = Maker()
    for _ in range(2):
        assert ObjectCache(blocked / "native").get("k", make) == CONTENT
    assert make.calls == 2


def test_a_read_only_folder_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def forbidden(*_):
        raise PermissionError(13, "Permission denied")

    cache, make = ObjectCache(tmp_path), Maker()
    cache.get("k", make)
    # Permissions of the folder would not do: the superuser has them all.
    monkeypatch.setattr(os, "open", forbidden)
    assert cache.get("k", make) == CONTENT
    assert cache.get("other", make) == CONTENT
    assert make.calls == 2
    assert [path.name for path in (tmp_path / "native").iterdir()] == ["k.o"]


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert ObjectCache(tmp_path).get("k", Maker()) == CONTENT
    assert list((tmp_path / "native").iterdir()) == []


def _work(folder: Path, number: int, results) -> None:
    cache = ObjectCache(folder)
    contents = [bytes([key]) * (50_000 + key) for key in range(6)]
    order = [(key + number) % 6 for key in range(6)] * 5
    ok = all(cache.get(f"k{key}", Maker(contents[key])) == contents[key] for key in order)
    results.put(ok)


def test_many_processes_share_a_folder(tmp_path: Path):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [
        context.Process(target=_work, args=(tmp_path, number, results)) for number in range(6)
    ]
    for process in processes:
        process.start()
    outcomes = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert outcomes == [True] * 6
    assert sorted(path.name for path in (tmp_path / "native").iterdir()) == [
        f"k{key}.o" for key in range(6)
    ]


def test_compiled_artifacts_come_from_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    echo = artifact("echo", ECHO, tensor("out"), scalar("n", "i64"))
    first = compile_artifact(echo, tmp_path)
    (stored,) = (tmp_path / "native").iterdir()

    def refuse(_):
        raise AssertionError("compiled again")

    monkeypatch.setattr(machine_code.code_maker(echo.target), "make_object", refuse)
    assert compile_artifact(echo, tmp_path) == first
    stored.write_bytes(b"")
    with pytest.raises(AssertionError, match="compiled again"):
        compile_artifact(echo, tmp_path)


def test_everything_that_matters_is_in_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    parameters = (tensor("out"), scalar("n", "i64"))
    compile_artifact(artifact("echo", ECHO, *parameters), tmp_path)
    compile_artifact(artifact("echo", ECHO + "\n", *parameters), tmp_path)
    avx2, sse = parse_target("cpu:avx2"), parse_target("cpu:sse")
    compile_artifact(artifact("echo", ECHO, *parameters, target=avx2), tmp_path)
    compile_artifact(artifact("echo", ECHO, *parameters, target=sse), tmp_path)
    monkeypatch.setattr(machine_code, "llvm_version", lambda: "another")
    compile_artifact(artifact("echo", ECHO, *parameters), tmp_path)
    assert len(list((tmp_path / "native").iterdir())) == 5


def test_the_object_of_another_kernel_under_this_name_is_not_run(tmp_path: Path):
    """Both have the same entry point and are whole: only the key tells them apart."""
    echo = artifact("echo", ECHO, tensor("out"), scalar("n", "i64"))
    first = compile_artifact(echo, tmp_path)
    (stored,) = (tmp_path / "native").iterdir()
    text = ECHO.replace("store i64 %threads", "store i64 7")
    other = artifact("echo", text, *echo.parameters)
    assert compile_artifact(other, tmp_path) != first
    (foreign,) = set((tmp_path / "native").iterdir()) - {stored}
    whole = stored.read_bytes()
    stored.write_bytes(foreign.read_bytes())
    assert compile_artifact(echo, tmp_path) == first
    assert stored.read_bytes() == whole


def test_a_file_that_others_can_write_is_made_again(tmp_path: Path):
    cache, make = ObjectCache(tmp_path), Maker()
    cache.get("k", make)
    cache.path("k").chmod(0o666)
    assert cache.get("k", make) == CONTENT
    assert make.calls == 2
    assert cache.path("k").stat().st_mode & 0o777 == 0o600


def test_an_object_that_does_not_link_is_made_again(tmp_path: Path):
    echo = artifact("echo", ECHO, tensor("out"), scalar("n", "i64"))
    right = compile_artifact(echo, tmp_path)
    (stored,) = (tmp_path / "native").iterdir()
    ObjectCache(tmp_path).get(stored.stem, Maker(b"whole, but no object"), is_new=True)
    assert compile_artifact(echo, tmp_path) != right
    load_artifact(echo, tmp_path)
    assert compile_artifact(echo, tmp_path) == right


def test_a_module_that_was_changed_is_written_again(tmp_path: Path):
    path = tmp_path / "modules" / "kernel_0123456789abcdef.py"
    assert not write_once(path, "x = 1\n")
    assert write_once(path, "x = 1\n")
    path.write_text("x = 2\n")
    assert not write_once(path, "x = 1\n")
    assert path.read_text() == "x = 1\n"
    assert path.parent.stat().st_mode & 0o777 == 0o700
