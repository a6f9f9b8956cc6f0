"""LLVM IR text to object code or assembly of a CPU target. No optimisation passes are run."""

from __future__ import annotations

import os
import platform
import struct
import tempfile
import threading
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import tilesmith.exc as errors
from tilesmith.artifacts import Artifact
from tilesmith.diagnostics.logs import Stopwatch, topic_log
from tilesmith.targets import Target

CACHE, COMPILE = topic_log("cache"), topic_log("compile")
OPTIMIZATION_LEVEL = 2
"""Of instruction selection, scheduling and register allocation."""
_CPUS = {"avx512": "x86-64-v4", "avx2": "x86-64-v3", "sse": "x86-64-v2"}
_MACHINES = {"neon": ("aarch64", "arm64")} | dict.fromkeys(_CPUS, ("x86_64", "amd64"))


@cache
def llvm() -> Any:
    """``llvmlite.binding`` with every target it was built with.

    Imported on first use: it takes a twentieth of a second.
    """
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding


@cache
def llvm_version() -> str:
    """What generated code depends on: the versions of llvmlite and of the LLVM in it."""
    import llvmlite

    return f"{llvmlite.__version__} {'.'.join(map(str, llvm().llvm_version_info))}"


class CodeMaker:
    """Makes machine code for one target."""

    def __init__(self, target: Target) -> None:
        self.triple = _triple(target)
        # Features found on a machine are complete: a CPU's name must not add to them.
        self.cpu = "" if target.features else _CPUS.get(target.arch, "")
        self._machine = (
            llvm()
            .Target.from_triple(self.triple)
            .create_target_machine(
                cpu=self.cpu,
                features=target.features,
                opt=OPTIMIZATION_LEVEL,
                reloc="pic",
                codemodel="small",
            )
        )
        self._lock = threading.Lock()
        self.identity = f"{self.triple} {self.cpu} {target.features} O{OPTIMIZATION_LEVEL}"
        """Everything but the text that the code depends on, llvmlite's version apart."""

    def make_object(self, text: str) -> bytes:
        """A relocatable object."""
        with self._lock:
            return self._machine.emit_object(self._parse(text))

    def make_assembly(self, text: str) -> str:
        """The same code to read."""
        with self._lock:
            return self._machine.emit_assembly(self._parse(text))

    def _parse(self, text: str) -> Any:
        try:
            # A context of its own: types and constants go away with the module.
            module = llvm().parse_assembly(text, llvm().create_context())
            module.verify()
        except RuntimeError as error:
            raise errors.InternalError(
                problem=f"LLVM rejects the generated code: {str(error).strip()}"
            ) from error
        module.triple = self.triple
        return module


@cache
def code_maker(target: Target) -> CodeMaker:
    """The maker of a target, set up once."""
    return CodeMaker(target)


def _triple(target: Target) -> str:
    """This machine's triple where it fits, so that calls follow its conventions."""
    machines = _MACHINES.get(target.arch)
    if machines is None or platform.machine().lower() in machines:
        return llvm().get_process_triple()
    return f"{machines[0]}-unknown-linux-gnu"


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
        CACHE.info("object %s %s", self.path(key), "is made" if found is None else "is there")
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

    def make() -> bytes:
        watch = Stopwatch()
        made = maker.make_object(artifact.llvm)
        COMPILE.info("%s: machine code %s", artifact.kernel_name, watch.lap())
        return made

    return ObjectCache(cache_dir / "native").get(key, make)
