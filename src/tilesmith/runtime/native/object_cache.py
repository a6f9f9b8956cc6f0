"""Compiled objects on disk, shared by processes.

An entry is complete or it is not there: it is written under another name and renamed, and its
length and checksum stand at its head. A disk that cannot be used only means no caching.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path

from tilesmith.artifacts import Artifact
from tilesmith.runtime.native.machine_code import code_maker, llvm_version

_HEAD = struct.Struct("<8sQ32s")
_MAGIC = b"tsobj\x00\x00\x01"


def object_key(parts: Iterable[str]) -> str:
    """The name of an entry, from everything its content depends on."""
    return sha256("\0".join(parts).encode()).hexdigest()


class ObjectCache:
    """Objects by key in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, key: str) -> Path:
        """Where the entry of a key lies."""
        return self._folder / f"{key}.o"

    def get(self, key: str, make: Callable[[], bytes]) -> bytes:
        """The stored object, or a new one that is stored for the next."""
        found = self._read(key)
        if found is None:
            found = make()
            self._write(key, found)
        return found

    def _read(self, key: str) -> bytes | None:
        try:
            stored = self.path(key).read_bytes()
            magic, length, checksum = _HEAD.unpack_from(stored)
        except (OSError, struct.error):
            return None
        content = stored[_HEAD.size :]
        is_whole = magic == _MAGIC and len(content) == length
        return content if is_whole and sha256(content).digest() == checksum else None

    def _write(self, key: str, content: bytes) -> None:
        head = _HEAD.pack(_MAGIC, len(content), sha256(content).digest())
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, scratch = tempfile.mkstemp(suffix=".tmp", dir=self._folder)
        except OSError:
            return
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(head + content)
            os.replace(scratch, self.path(key))
        except OSError:
            Path(scratch).unlink(missing_ok=True)


def compile_artifact(artifact: Artifact, cache_dir: Path) -> bytes:
    """The object of an artifact, from the disk if it was compiled before."""
    maker = code_maker(artifact.target)
    key = object_key([artifact.llvm, llvm_version(), maker.identity])
    return ObjectCache(cache_dir / "native").get(key, lambda: maker.make_object(artifact.llvm))
