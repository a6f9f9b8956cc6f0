"""Runs emitted modules on the CPU through Triton's interpreter."""

from __future__ import annotations

import pickle
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.warm_python import warm_python
from tilesmith.artifacts import Artifact
from tilesmith.backends.triton.build import compile_artifact


class InterpreterProcess:
    """One worker, fed one module at a time."""

    def __init__(self) -> None:
        self._compiled: set[str] = set()
        worker = Path(__file__).with_name("interpreter_worker.py")
        self._process = subprocess.Popen(
            [*warm_python(), "-W", "ignore", str(worker)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(self, artifact: Artifact, *args: Any) -> list[Any]:
        """Call ``launch``. The module must compile too: the interpreter is the more lenient."""
        if artifact.source not in self._compiled:
            self._compiled.add(artifact.source)
            named = zip((parameter.name for parameter in artifact.parameters), args)
            scalars = {name: value for name, value in named if isinstance(value, int)}
            compile_artifact(artifact, scalars=scalars)
        return self.interpret(artifact, *args)

    def interpret(self, artifact: Artifact, *args: Any) -> list[Any]:
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
