"""A shared place as a few operations: list, read, write once, remove. Named by a URL of fsspec.

Objects are never changed: a name has the digest of its content, so writers at once cannot undo each
other, and a reader knows whether it got what was written.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_hex
from typing import Any

FOLDER = "tilesmith-1"
"""Below the URL; another format will have another."""
DIGITS = 32
MAX_OBJECT_BYTES = 4 << 20
MAX_LISTED = 20_000
"""Objects of one kernel that are looked at."""
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "adl", "oss", "oci"}
NAME = re.compile(rf"(winner|journal)-([0-9a-f]{{{DIGITS}}})\.json")
KERNEL = re.compile(r"[A-Za-z0-9_.]{1,80}")


class TeamCacheError(Exception):
    """A shared place that cannot be used; the text says which and why."""


@dataclass(frozen=True)
class Entry:
    """An object that is there."""

    kernel: str
    name: str
    nbytes: int

    @property
    def kind(self) -> str:
        """``winner`` or ``journal``."""
        return self.name.partition("-")[0]

    def __str__(self) -> str:
        return f"{self.kernel}/{self.name}"


def object_name(kind: str, content: bytes) -> str:
    """What an object is called."""
    return f"{kind}-{sha256(content).hexdigest()[:DIGITS]}.json"


class SharedFolder:
    """The objects below a URL; TeamCacheError for whatever a file system raises."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            fsspec = importlib.import_module("fsspec.core")
            self._files, path = fsspec.url_to_fs(url)
        except ImportError as error:
            raise TeamCacheError(
                f"{url} needs a package that is not installed ({error}): pip install "
                "'tilesmith[team]', and for s3 s3fs, for gs gcsfs"
            ) from None
        except (ValueError, OSError) as error:
            raise TeamCacheError(f"{url!r} is no place for a cache: {error}") from None
        self._place = str(path)
        self._root = f"{str(path).rstrip('/')}/{FOLDER}"

    def exists(self) -> bool:
        """Whether there is anything at the URL."""
        return bool(self._do(lambda: self._files.exists(self._place)))

    def kernels(self) -> list[str]:
        """The kernels that have objects."""
        names = [str(item["name"]).rstrip("/").rpartition("/")[2] for item in self._list("")]
        return sorted(name for name in names if KERNEL.fullmatch(name))

    def entries(self, kernel: str) -> list[Entry]:
        """The objects of a kernel, in the order of their names; other files are left alone."""
        found: list[Entry] = []
        for item in self._list(kernel)[:MAX_LISTED]:
            name = str(item["name"]).rstrip("/").rpartition("/")[2]
            if NAME.fullmatch(name):
                found.append(Entry(kernel, name, int(item.get("size") or 0)))
        return sorted(found, key=lambda entry: entry.name)

    def all_entries(self, kernel: str | None = None) -> Iterator[Entry]:
        """The objects of a kernel, or of all."""
        for name in [kernel] if kernel else self.kernels():
            yield from self.entries(name)

    def read(self, entry: Entry) -> bytes:
        """The content of an object; ValueError where it is not what was written."""
        if entry.nbytes > MAX_OBJECT_BYTES:
            raise ValueError(f"it has {entry.nbytes:,} bytes, more than {MAX_OBJECT_BYTES:,}")
        content = self._do(
            lambda: self._files.cat_file(self._path(entry), start=0, end=MAX_OBJECT_BYTES + 1)
        )
        if object_name(entry.kind, content) != entry.name:
            raise ValueError("its content is not the one that its name was made of")
        return content

    def write(self, kernel: str, kind: str, content: bytes) -> bool:
        """Add an object; whether it was not there. It appears whole."""
        if "http" in self._files.protocol:  # some servers take files, fsspec's cannot list those
            raise TeamCacheError(f"{self.url} can be read, not written")
        entry = Entry(kernel, object_name(kind, content), len(content))
        if self._do(lambda: self._files.exists(self._path(entry))):
            return False
        try:
            self._do(lambda: self._put(self._path(entry), content))
        except FileNotFoundError as error:  # of Google's a URL without a word
            raise TeamCacheError(f"{self.url}: no such bucket or folder: {error}") from None
        return True

    def remove(self, entry: Entry) -> None:
        """Take an object away."""
        self._do(lambda: self._files.rm_file(self._path(entry)))

    def _put(self, path: str, content: bytes) -> None:
        known = self._files.protocol
        protocols = {known} if isinstance(known, str) else set(known)
        # An object store has no folders: asked for one, it would make a bucket of a wrong name.
        if not protocols & OBJECT_STORES:
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        if "file" not in protocols:
            self._files.pipe_file(path, content)
            return
        part = f"{path}.{token_hex(6)}.part"
        try:
            self._files.pipe_file(part, content)
            self._files.mv(part, path)
        except BaseException:
            if self._files.exists(part):
                self._files.rm_file(part)
            raise

    def _path(self, entry: Entry) -> str:
        return f"{self._root}/{entry.kernel}/{entry.name}"

    def _list(self, kernel: str) -> list[dict[str, Any]]:
        path = f"{self._root}/{kernel}".rstrip("/")
        self._files.invalidate_cache()
        try:
            return self._do(lambda: self._files.ls(path, detail=True))
        except FileNotFoundError:
            return []

    def _do(self, action: Any) -> Any:
        try:
            return action()
        except FileNotFoundError:
            raise
        except Exception as error:  # file systems raise what their libraries do
            text = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise TeamCacheError(f"{self.url}: {text}") from error
