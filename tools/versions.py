"""Builds an environment for the oldest and the newest versions we say we run with, and tries them.

``python -m tools.versions`` makes a source distribution, and for each combination an environment
below ``build/versions`` in which it is installed. There the tests of the distribution run (its own
copy of them: conformance and examples), then every ``tilesmith`` command of the README, in an empty
folder. Environments take gigabytes; one that exists is used again.

``--python 3.12 --torch 2.11.0`` tries another combination, ``--folder`` keeps environments
elsewhere. Interpreters are those on the path and those of pyenv.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "versions"
TESTS = ("tests/conformance", "tests/examples")
TOOLS = ("pytest", "pytest-xdist", "hypothesis")
SHOWN = ("torch", "triton", "llvmlite", "numpy")
ALONE = ("env", "-u", "PYTHONPATH")
"""Before a command: it finds what is installed, not this checkout."""
COMMAND = re.compile(r"^tilesmith .*$", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Combination:
    """An interpreter and what is installed for it; what is not named is the newest that fits."""

    name: str
    python: str
    """Its version; empty: the newest there is."""
    pins: tuple[str, ...] = ()


COMBINATIONS = (
    Combination("oldest", "3.10", ("torch==2.10.0", "triton==3.6.0", "llvmlite==0.45.*")),
    Combination("newest", ""),
)


def interpreters() -> dict[str, Path]:
    """Every Python from 3.10 on that runs here, by its version."""
    known = Path.home() / ".pyenv" / "versions"
    paths = [Path(path) for n in range(10, 20) if (path := shutil.which(f"python3.{n}"))]
    paths += [Path(sys.executable), *known.glob("*/bin/python")]
    found: dict[str, Path] = {}
    for path in paths:
        asked = [str(path), "-c", "import sys; print(*sys.version_info[:2], sep='.')"]
        ended = subprocess.run(asked, capture_output=True, text=True, check=False)
        version = ended.stdout.strip()
        if not ended.returncode and _number(version) >= (3, 10):
            found.setdefault(version, path)
    return found


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def make_sdist(folder: Path) -> Path:
    """The source distribution, made from what git would take along."""
    source = folder / "source"
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, map(os.fsdecode, names)):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    build = f"from setuptools import build_meta as b; b.build_sdist({str(folder)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, check=True)
    (made,) = folder.glob("*.tar.gz")
    return made


def prepare(home: Path, combination: Combination, python: Path, sdist: Path) -> Path:
    """The interpreter of an environment in ``home`` with the distribution in it."""
    inside = home / "bin" / "python"
    if not inside.exists():
        subprocess.run([str(python), "-m", "venv", str(home)], check=True)
    install = [str(inside), "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, *combination.pins, str(sdist), *TOOLS], check=True)
    # The version is the same each time, the content is not.
    again = ["--force-reinstall", "--no-deps", str(sdist)]
    subprocess.run([*install, *again], check=True)
    return inside


def describe(python: Path) -> str:
    """What is installed."""
    asked = "import sys; from importlib.metadata import version as v; "
    asked += f"print('Python %d.%d' % sys.version_info[:2], *(n + ' ' + v(n) for n in {SHOWN!r}))"
    command = [str(python), "-c", asked]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def run_tests(python: Path, sdist: Path, folder: Path, jobs: int) -> str:
    """The last line of pytest, from the distribution's own tests."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = [path for path in folder.iterdir() if path.is_dir()]
    # The installed package is tried, not the source beside the tests.
    shutil.rmtree(unpacked / "src")
    options = ["-q", "-n", str(jobs), "-o", "pythonpath=.", "-W", "default"]
    command = [*ALONE, str(python), "-m", "pytest", *options, *TESTS]
    ended = subprocess.run(command, cwd=unpacked, capture_output=True, text=True, check=False)
    lines = ended.stdout.strip().splitlines() or [ended.stderr.strip()[-500:]]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return "\n".join([*failed[:20], lines[-1]])


def readme_commands() -> list[str]:
    """The commands that a reader would type."""
    return COMMAND.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def readme_program() -> str:
    """The Python of the README, one block after the other, as a reader would paste it."""
    return "\n".join(BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8")))


def run_program(python: Path, folder: Path) -> str:
    """Whether the README's Python works; what it says if not."""
    path = folder / "readme.py"  # a kernel's source is read from its file
    path.write_text(readme_program(), encoding="utf-8")
    words = [*ALONE, f"TILESMITH_CACHE_DIR={folder / 'cache'}", str(python), str(path)]
    ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    problem = "" if not ended.returncode else f": {ended.stderr.strip()[-500:]}"
    return f"{'ok    ' if not ended.returncode else 'FAILED'} the README's Python{problem}"


def run_commands(python: Path, commands: Sequence[str], folder: Path) -> Iterator[str]:
    """For each command whether it worked; what it says if not."""
    settings = [*ALONE, f"TILESMITH_CACHE_DIR={folder / 'cache'}"]
    for command in commands:
        words = [*settings, str(python.parent / "tilesmith"), *shlex.split(command)[1:]]
        ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        problem = "" if not ended.returncode else f": {ended.stderr.strip()[-500:]}"
        yield f"{'ok    ' if not ended.returncode else 'FAILED'} {command}{problem}"


def try_combination(combination: Combination, folder: Path, jobs: int) -> bool:
    """Print what works with one combination; whether all does."""
    known = interpreters()
    version = combination.python or max(known, key=_number)
    if version not in known:
        print(f"{combination.name}: no Python {version} here", flush=True)
        return False
    with tempfile.TemporaryDirectory(prefix="tilesmith_") as work:
        places = [Path(work) / name for name in ("sdist", "tests", "empty")]
        for place in places:
            place.mkdir()
        sdist = make_sdist(places[0])
        python = prepare(folder / combination.name, combination, known[version], sdist)
        print(f"{combination.name}: {describe(python)}", flush=True)
        found = [run_tests(python, sdist, places[1], jobs)]
        print(found[0], flush=True)
        tried = run_commands(python, readme_commands(), places[2])
        for line in chain([run_program(python, places[2])], tried):
            print(line, flush=True)
            found.append(line)
    return not any("FAILED" in text or "ERROR" in text or "failed" in text for text in found)


def main() -> None:
    """Try all combinations, or the one that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="", help="a version, such as 3.12")
    parser.add_argument("--torch", default="", help="a version, such as 2.11.0")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=WORK, help="where environments are kept")
    given = parser.parse_args()
    chosen = COMBINATIONS
    if given.python or given.torch:
        pins = (f"torch=={given.torch}",) if given.torch else ()
        name = f"python{given.python}-torch{given.torch}"
        chosen = (Combination(name, given.python, pins),)
    results = [try_combination(each, given.folder, given.jobs) for each in chosen]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
