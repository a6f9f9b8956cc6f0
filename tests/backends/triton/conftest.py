"""Runs emitted modules on the CPU through Triton's interpreter."""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tilesmith.artifacts import Artifact


class InterpreterProcess:
    """One worker, fed one module at a time."""

    def __init__(self) -> None:
        worker = Path(__file__).with_name("interpreter_worker.py")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(worker)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(self, artifact: Artifact, *args: Any) -> list[Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        data = pickle.dumps((artifact.source, list(args)))
        self._process.stdin.write(struct.pack("q", len(data)) + data)
        self._process.stdin.flush()
        size = struct.unpack("q", self._process.stdout.read(8))[0]
        answer = pickle.loads(self._process.stdout.read(size))
        if isinstance(answer, str):
            pytest.fail(f"{answer}\n{artifact.source}")
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture(scope="session")
def interpreter() -> Iterator[InterpreterProcess]:
    process = InterpreterProcess()
    yield process
    process.close()


@pytest.fixture
def run(interpreter: InterpreterProcess) -> Callable[..., list[Any]]:
    """``run(artifact, *args)``: call the module's ``launch`` and give back the arguments."""
    return interpreter.run
