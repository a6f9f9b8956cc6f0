"""What a wrong use says: the program or command is run in this process, in a folder of its own."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from typer.testing import CliRunner

from tests.wrong_uses.files import write_files
from tests.wrong_uses.pages import Use
from tilesmith import settings
from tilesmith.cli.main import app
from tilesmith.exc import Base

PRELUDE = "import tilesmith\nimport tilesmith.language as hl\nimport torch\n\n"
"""What the pages say once: every program begins with it."""
PROGRAM = "program.py"
ASSIGNMENT = re.compile(r"[A-Z_]+=")
DIGEST = re.compile(r"\b[0-9a-f]{32}\b")
PROCESSOR = re.compile(r"(?<=running on )cpu:\w+")
"""What differs from machine to machine."""
WARNED = re.compile(r"^WARNING\[(\w+)\]", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """The text on the screen, what was raised, and the exit code of a command."""

    text: str
    raised: BaseException | None = None
    exit_code: int = 0

    @property
    def classes(self) -> set[str]:
        """Names of the classes of the catalogue that it shows."""
        errors = {type(self.raised).__name__} if isinstance(self.raised, Base) else set[str]()
        return errors | set(WARNED.findall(self.text))


def produce(use: Use) -> Outcome:
    """Run it, and say what it says."""
    with tempfile.TemporaryDirectory(prefix="wrong-") as folder, _own_world(Path(folder)) as here:
        write_files(here)
        outcome = _run_program(use.code) if use.kind == "python" else _run_commands(use.code)
        return Outcome(_neutral(outcome.text, here), outcome.raised, outcome.exit_code)


@contextmanager
def _own_world(folder: Path) -> Iterator[Path]:
    """Folder, environment, modules and paths of the process; all are as before afterwards."""
    here = folder.resolve()
    environment, paths, modules = dict(os.environ), list(sys.path), set(sys.modules)
    before = Path.cwd()
    os.chdir(here)
    os.environ.update(COLUMNS="90", TERM="dumb", NO_COLOR="1", TILESMITH_CACHE_DIR=str(here / "c"))
    # What is told once a process is told to each.
    settings._warn.cache_clear()
    settings._name_unknown.cache_clear()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own remarks
            yield here
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = paths
        for name in set(sys.modules) - modules:
            if _is_of(here, name):
                del sys.modules[name]


def _is_of(folder: Path, name: str) -> bool:
    file = getattr(sys.modules[name], "__file__", None) or ""
    return name.partition(".")[0] == "helion" or file.startswith(str(folder))


def _run_program(code: str) -> Outcome:
    Path(PROGRAM).write_text(PRELUDE + code, encoding="utf-8")
    return _run_file(PROGRAM)


def _run_file(file: str) -> Outcome:
    raised: BaseException | None = None
    sys.path.insert(0, str(Path.cwd()))
    with redirect_stdout(StringIO()) as out, redirect_stderr(out):
        try:
            # Files of earlier programs had the same name.
            runpy.run_path(str(Path(file).resolve()), run_name="__main__")
        except (Exception, SystemExit) as error:
            raised = error
    shown = "" if raised is None else "".join(traceback.format_exception_only(raised))
    return Outcome(out.getvalue() + shown, raised, int(raised is not None))


def _run_commands(code: str) -> Outcome:
    outcomes = [_run_command(line.removeprefix("$ ")) for line in code.splitlines()]
    text = "".join(outcome.text for outcome in outcomes)
    return Outcome(text, outcomes[-1].raised, outcomes[-1].exit_code)


def _run_command(line: str) -> Outcome:
    words = shlex.split(line)
    while ASSIGNMENT.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        os.environ[name] = value
    if words[0] == "python":
        return _run_file(words[1])
    assert words[0] == "tilesmith", line
    ended = CliRunner().invoke(app, words[1:], prog_name="tilesmith")
    raised = ended.exception if not isinstance(ended.exception, SystemExit) else None
    shown = "" if raised is None else "".join(traceback.format_exception(raised))
    return Outcome(ended.output + shown, raised, ended.exit_code)


def _neutral(text: str, here: Path) -> str:
    """The text without the folder that it was made in."""
    text = text.replace(f"{here}/", "").replace(str(here), ".")
    text = PROCESSOR.sub("cpu", DIGEST.sub("<digest>", text))
    return "".join(f"{line.rstrip()}\n" for line in text.strip("\n").splitlines())
