"""What runs on the nodes of a cluster: builds as functions, and timing as an object on one device.

A timing worker has a child process like any search, so a candidate that crashes takes down neither
the worker nor what it knows of others. Code that was built elsewhere is put where that child looks.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from socket import gethostname
from typing import Any

import torch

from tilesmith.fleet.parcels import (
    Answer,
    Facts,
    Files,
    moved,
    parcel_name,
    read_folder,
    write_folder,
)
from tilesmith.lab.folders import temporary_folder
from tilesmith.lab.processes.channel import ChildError, decode, encode
from tilesmith.lab.processes.child import RestartingChild
from tilesmith.runtime.device import describe_device, target_of
from tilesmith.store.lookup import toolchain
from tilesmith.tune.jobs import BuildReply
from tilesmith.tune.places import RUNNER_MODULE
from tilesmith.tune.runner.build import build_program

CACHE_VARIABLE = "TILESMITH_CACHE_DIR"
PREFIX = "tilesmith_node_"


@lru_cache(maxsize=1)
def _build_folder() -> Path:
    """One for all builds of this process, which ends with the cluster's job."""
    return Path(tempfile.mkdtemp(prefix=PREFIX))


def is_importable() -> bool:
    """Loads this module, and what builds need, into a process of the cluster."""
    return True


def build(program: bytes) -> tuple[BuildReply, Files]:
    """Build a program; its files are those that a runner looks for."""
    folder = _build_folder()
    before = set(read_folder(folder))
    reply = build_program(decode(program), folder)
    files = read_folder(folder)
    new = {name: content for name, content in files.items() if name not in before}
    # What was built before, for another try of the same program, leaves no new file.
    return reply, new or files


class TimingWorker:
    """Owns one device. ``device`` is as this process names it."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(temporary_folder(PREFIX))
        arguments = () if device == "cpu" else (device,)
        environment = {CACHE_VARIABLE: str(self._folder)}
        self._child = RestartingChild(RUNNER_MODULE, environment, is_bare=True, arguments=arguments)
        self._child.start()

    def describe(self) -> Facts:
        """Where this is, and what kind of device it has; its child is up then."""
        self._child.await_ready()
        target = target_of(torch.device(self._device))
        return Facts(gethostname(), describe_device(target), target, toolchain())

    def prepare(self, job: bytes, files: Files, timeout_s: float) -> bytes:
        """A job that later processes need too."""
        found = self._unpack(job, files)
        return self._answer(lambda: self._child.prepare(found, timeout_s))

    def request(self, job: bytes, files: Files, built: Files, timeout_s: float) -> bytes:
        """Any other job; ``built`` is code for it."""
        write_folder(self._folder, built)
        found = self._unpack(job, files)
        return self._answer(lambda: self._child.request(found, timeout_s))

    def forget_preparation(self) -> None:
        """Let later processes start as if nothing had been prepared."""
        self._child.forget_preparation()

    def _unpack(self, job: bytes, files: Files) -> Any:
        place = self._folder / "parcels"
        write_folder(place, files)
        return moved(decode(job), lambda path: place / parcel_name(path))

    def _answer(self, ask: Any) -> bytes:
        try:
            reply = ask()
        except ChildError as failure:
            reply = failure
        return encode(Answer(reply, self._child.num_starts))
