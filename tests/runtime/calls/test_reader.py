"""How the native reader of tensors comes about, and when there is none."""

from __future__ import annotations

import ctypes
import struct
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tilesmith.runtime.calls import reader as module
from tilesmith.runtime.calls.reader import (
    CannotBuildError,
    ReaderStore,
    TensorReader,
    build_reader,
    process_readers,
)
from tilesmith.settings import Settings

ADDRESS = ((0, 0, 0),)
BYTES = (torch.int8, torch.uint8)
CACHE = Path(Settings().cache_dir)
pytestmark = pytest.mark.skipif(
    process_readers().get(CACHE) is None, reason=process_readers().obstacle
)


@pytest.fixture
def reader() -> TensorReader:
    found = process_readers().get(CACHE)
    assert found is not None
    return found


def test_one_process_has_one_reader(tmp_path: Path):
    store = ReaderStore()
    assert store.get(tmp_path / "a") is store.get(tmp_path / "b")
    assert store.obstacle == ""
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_it_is_compiled_once(tmp_path: Path):
    build_reader(tmp_path)
    (stored,) = (tmp_path / "native").iterdir()
    x = torch.zeros(3)
    # A compiler that does not exist is not asked for what is on the disk.
    assert (
        build_reader(tmp_path, "/no/such/compiler").Layout(1, ADDRESS).values(x)[1] == x.data_ptr()
    )
    stored.write_bytes(stored.read_bytes()[:-100])
    with pytest.raises(CannotBuildError, match="/no/such/compiler"):
        build_reader(tmp_path, "/no/such/compiler")
    assert build_reader(tmp_path).Layout(1, ADDRESS).values(x)[1] == x.data_ptr()


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path):
    (tmp_path / "file").write_text("")
    x = torch.zeros(3)
    assert build_reader(tmp_path / "file").Layout(1, ADDRESS).values(x)[1] == x.data_ptr()


def test_a_compiler_that_fails_is_named(tmp_path: Path):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'Python.h: No such file' >&2\nexit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(CannotBuildError, match=r"cc failed: Python.h: No such file"):
        build_reader(tmp_path, str(compiler))
    compiler.write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(CannotBuildError, match=r"cc failed: .*tensor_reader.so"):
        build_reader(tmp_path, str(compiler))


def test_a_machine_without_a_compiler_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    variable = sysconfig.get_config_var
    monkeypatch.setattr(
        module.sysconfig, "get_config_var", lambda name: "cc" if name == "CC" else variable(name)
    )
    store = ReaderStore()
    assert store.get(tmp_path) is None
    assert store.obstacle == "no C compiler is installed"


def test_a_machine_without_room_for_files_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    build_reader(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    for cache in (tmp_path, tmp_path / "empty"):
        store = ReaderStore()
        assert store.get(cache) is None
        assert "missing" in store.obstacle


def test_what_is_no_extension_cannot_be_loaded(tmp_path: Path):
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\nfor last; do :; done\necho nothing > "$last"\n')
    compiler.chmod(0o755)
    with pytest.raises(CannotBuildError, match="cannot be loaded"):
        build_reader(tmp_path, str(compiler))


def test_a_torch_without_the_api_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class OldTensor:
        pass

    monkeypatch.setattr(module.torch, "Tensor", OldTensor)
    with pytest.raises(CannotBuildError, match="no C exchange API"):
        build_reader(tmp_path)


def test_a_reader_that_reads_something_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    right = build_reader(tmp_path)

    def make_layout(num_tensors: int, entries: tuple[tuple[int, int, int], ...]):
        swapped = tuple((tensor, (0, 2, 1)[field], axis) for tensor, field, axis in entries)
        return right.Layout(num_tensors, swapped)

    wrong = SimpleNamespace(use=lambda *args: True, Layout=make_layout)
    monkeypatch.setattr(module, "_load", lambda content: wrong)
    with pytest.raises(CannotBuildError, match="tells something else than torch"):
        build_reader(tmp_path)


@pytest.mark.parametrize("is_found", [True, False])
def test_negated_views_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_found):
    if not is_found:
        monkeypatch.setattr(module, "_sign_pairs", tuple)
    reader: Any = build_reader(tmp_path)
    # Where it is not Linux, torch is asked.
    assert reader.notes_signs() is (is_found and sys.platform.startswith("linux"))
    layout = reader.Layout(1, ADDRESS)
    z = torch.randn(2, 3, dtype=torch.complex64)
    for plain, negated in [
        (z.imag, z.conj().imag),
        (z.imag.as_strided((6,), (1,)), z.conj().imag.as_strided((6,), (1,))),
        (torch.nn.Parameter(z.imag), torch.nn.Parameter(z.conj().imag)),
    ]:
        assert layout.values(plain)[1] == plain.data_ptr()
        with pytest.raises(ValueError, match="flipped lazily"):
            layout.values(negated)


def make_capsule(content: bytes, name: bytes = b"dlpack_exchange_api"):
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p), name, None)


@pytest.mark.parametrize(("major", "read"), [(2, 1), (0, 1), (1, 0)])
def test_apis_of_other_versions_are_not_used(reader, major: int, read: int):
    content = struct.pack("=IIQQQQQQ", major, 0, 0, 1, 1, 1, read, 1)
    name = b"dlpack_exchange_api"
    assert reader.use(make_capsule(content, name), (torch.Tensor,), BYTES) is False
    x = torch.zeros(3)
    assert reader.Layout(1, ADDRESS).values(x)[1] == x.data_ptr(), "the one in use still is"
    with pytest.raises(ValueError, match="incorrect name"):
        reader.use(make_capsule(content, b"other"), (torch.Tensor,), BYTES)
    with pytest.raises(TypeError):
        reader.use()
