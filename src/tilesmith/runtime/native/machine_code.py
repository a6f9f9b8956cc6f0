"""LLVM IR text to object code or assembly of a CPU target. No optimisation passes are run."""

from __future__ import annotations

import platform
import threading
from functools import cache
from pathlib import Path
from typing import Any

import tilesmith.exc as errors
from tilesmith.artifacts import Artifact
from tilesmith.diagnostics.logs import Stopwatch, topic_log
from tilesmith.disk.entries import ObjectCache, object_key
from tilesmith.targets import Target

COMPILE = topic_log("compile")
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


def compile_artifact(artifact: Artifact, cache_dir: Path, *, is_new: bool = False) -> bytes:
    """The object of an artifact, from the disk if it was compiled before (never if ``is_new``)."""
    maker = code_maker(artifact.target)
    key = object_key([artifact.llvm, llvm_version(), maker.identity])

    def make() -> bytes:
        watch = Stopwatch()
        made = maker.make_object(artifact.llvm)
        COMPILE.info("%s: machine code %s", artifact.kernel_name, watch.lap())
        return made

    return ObjectCache(cache_dir).get(key, make, is_new=is_new)
