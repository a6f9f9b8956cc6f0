"""Measures the floor plan of ``src``: the table of docs/decisions/0022, as it is now.

``python -m tools.house`` prints every figure; ``--rooms`` lines and files per folder, ``--chain``
the longest chain of imports, ``--single`` modules that exactly one other imports, ``--unused`` what
vulture finds, ``--branches`` questions about the kind of device outside of backends, ``--frames``
the calls between ``BoundKernel`` and the backend's ``emit``.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType

import torch

from examples.softmax import softmax

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "tilesmith"
BACKENDS = "src/tilesmith/backends/"
DEVICE_QUESTION = re.compile(r"\bis_gpu\b|\btarget\.kind\b")
LANE_MIXING_OP = re.compile(r"\bSort\b")
MAX_SIDE_BY_SIDE = 25
UNUSED = "unused symbols (vulture)"


def source_files() -> list[Path]:
    """All files of the package."""
    return sorted(SOURCE.rglob("*.py"))


def module_name(path: Path) -> str:
    """The dotted name of a file."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports() -> dict[str, frozenset[str]]:
    """For each module the modules of ours that it imports; packages only where named alone."""
    files = {module_name(path): path for path in source_files()}
    found: dict[str, frozenset[str]] = {}
    for name, path in files.items():
        tree = ast.parse(path.read_text())
        targets = {target for node in ast.walk(tree) for target in _imported(node, files)}
        found[name] = frozenset(targets - {name})
    return found


def _imported(node: ast.AST, files: dict[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in files)
    elif isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield from (name for name in (inner, node.module) if name in files and name == inner)
            if inner not in files and node.module in files:
                yield node.module


def longest_chain() -> list[str]:
    """Modules each of which imports the next, as many as there are."""

    @cache
    def chain(name: str) -> tuple[str, ...]:
        return (name, *max(map(chain, sorted(imports()[name])), key=len, default=()))

    return list(max(map(chain, sorted(imports())), key=len))


def modules_with_one_importer() -> list[str]:
    """Modules that exactly one other module imports."""
    counts = Counter(target for targets in imports().values() for target in targets)
    return sorted(name for name, count in counts.items() if count == 1)


def device_questions() -> list[str]:
    """Lines outside of backends (and of targets.py, which defines them) that ask for the device."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in source_files()
        if not path.relative_to(ROOT).as_posix().startswith(BACKENDS) and path.stem != "targets"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if DEVICE_QUESTION.search(line.partition("#")[0])
    ]


def crowded_folders() -> list[str]:
    """Folders with more files side by side than a reader takes in."""
    counts = Counter(path.parent for path in source_files())
    return [f"{p.relative_to(SOURCE)}: {n}" for p, n in counts.items() if n > MAX_SIDE_BY_SIDE]


def files_that_name_a_lane_mixing_op() -> list[str]:
    """Files whose code names ``Sort``."""
    texts = {path: path.read_text() for path in source_files()}
    # Most files do not even have the word: only the others are parsed.
    named = [path for path, text in texts.items() if LANE_MIXING_OP.search(text)]
    return [
        str(path.relative_to(ROOT))
        for path in named
        if LANE_MIXING_OP.search(_code_of(texts[path]))
    ]


def _code_of(text: str) -> str:
    """Names used in code: no prose."""
    tree = ast.parse(text)
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    aliases = [a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names]
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return " ".join([*names, *aliases, *classes])


def unused_symbols() -> list[str]:
    """What vulture finds in src; names that are used without being named stand in pyproject."""
    command = [sys.executable, "-m", "vulture"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [line for line in found.stdout.splitlines() if line.startswith("src/")]


def rooms(apart: Iterable[str] = ()) -> dict[str, tuple[int, int]]:
    """Files and lines of each folder of the package, with its subfolders.

    What is named in ``apart``, modules and folders (``passes/``), counts by itself, not in the
    folders around it. The whole package is ``.``, and has everything.
    """
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path in source_files():
        lines = len(path.read_text().splitlines())
        for name in _counted_in(path.relative_to(PACKAGE), frozenset(apart)):
            found[name][0] += 1
            found[name][1] += lines
    return {name: (counts[0], counts[1]) for name, counts in sorted(found.items())}


def _counted_in(path: Path, apart: frozenset[str]) -> list[str]:
    """The folders, and what counts by itself, whose figures a file is part of: from the inside."""
    folders = [parent.as_posix() for parent in path.parents]
    named = [path.as_posix(), *(f"{folder}/" for folder in folders[:-1])]
    for position, name in enumerate(named):
        if name in apart:
            return [*folders[:position], name, "."]
    return folders


def frames_to_emit() -> list[str]:
    """What stands between ``BoundKernel`` and the backend's ``emit``: the deepest of these ways.

    A first call on the CPU, a config that is set, and code for a GPU that is not here.
    """
    chains: list[list[str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        is_emit = event == "call" and frame.f_code.co_name == "emit" and _is_in(frame, BACKENDS)
        if not is_emit or _is_in(frame.f_back, BACKENDS):
            return
        frames = list(_callers(frame))
        bound = [i for i, caller in enumerate(frames) if _is_in(caller, "jit/bound_kernel.py")]
        if bound:
            chains.append([f.f_code.co_name for f in frames[: bound[-1] + 1]][::-1])

    x = torch.ones(8, 100)
    softmax.reset()
    sys.setprofile(note)
    try:
        softmax(x)
        bound = softmax.bind((x,))
        bound.set_config(bound.default_config().updated(block_sizes=[2]))
        softmax.bind((x,), target="cuda:90").to_code()
    finally:
        sys.setprofile(None)
    return max(chains, key=len)


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_in(frame: FrameType | None, place: str) -> bool:
    return frame is not None and place in frame.f_code.co_filename


def figures() -> dict[str, int]:
    """The table, but for what vulture needs ten seconds for."""
    files, lines = rooms()["."]
    return {
        "lines in src": lines,
        "files in src": files,
        "longest import chain": len(longest_chain()),
        "frames from BoundKernel to emit": len(frames_to_emit()) - 1,
        "questions about the device outside backends": len(device_questions()),
        "files that name a lane-mixing op (Sort)": len(files_that_name_a_lane_mixing_op()),
        "modules with one importer": len(modules_with_one_importer()),
        f"folders with more than {MAX_SIDE_BY_SIDE} files": len(crowded_folders()),
    }


def main() -> None:
    """Print the table, or one of the lists behind it."""
    lists = {
        "chain": longest_chain,
        "frames": frames_to_emit,
        "single": modules_with_one_importer,
        "branches": device_questions,
        "unused": unused_symbols,
        "crowded": crowded_folders,
        "sort": files_that_name_a_lane_mixing_op,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rooms", action="store_true")
    for name in lists:
        parser.add_argument(f"--{name}", action="store_true")
    chosen = vars(parser.parse_args())
    asked = [name for name in lists if chosen[name]]
    for name in asked:
        print("\n".join(lists[name]()))
    if chosen["rooms"]:
        print("\n".join(f"{f:5} {n:7,} {name}" for name, (f, n) in rooms().items()))
    elif not asked:
        found = {**figures(), UNUSED: len(unused_symbols())}
        print("\n".join(f"{value:7,}  {name}" for name, value in found.items()))


if __name__ == "__main__":
    main()
