"""The decision as a Python file beside the kernel's own: written, found and read.

It has ``key_NAME(*args)``, which says which config arguments get, and ``autotune_NAME(*args)``:
that config as a dictionary. Files that Helion wrote have the same two functions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tilesmith.dispatch.cover import Timings, geomean_loss
from tilesmith.dispatch.decision import Leaf, Node, leaves
from tilesmith.targets import Target

OURS, THEIRS = "_tilesmith_aot", "_helion_aot"
_CAPABILITY = re.compile(r"_(?:sm_?)?(\d+)$")


@dataclass(frozen=True)
class DecisionFile:
    """What a file says about one kernel."""

    path: Path
    key: Callable[..., Any]
    choose: Callable[..., dict[str, Any]]
    version: tuple[int, ...] | None = None
    """What tells it from the file before; code of one is not that of the next."""


def file_name(source: Path, kernel: str, target: Target) -> str:
    """What the file for a kernel of a source file is called."""
    return f"{OURS}_{source.stem}_{kernel}_{str(target).replace(':', '_')}.py"


def find_file(source: Path, kernel: str, target: Target) -> DecisionFile | None:
    """The file for a kernel on a device, or for the nearest older GPU of the kind.

    One for this very device counts as soon as it is written, also after the first call.
    """
    exact = _exact_path(source, kernel, target)
    version = None
    if os.access(exact, os.R_OK):  # at every call: cheaper than an error of ``stat``
        found = os.stat(exact)
        version = (found.st_mtime_ns, found.st_size, found.st_ino)
    return _read_file(source, kernel, target, version)


@cache
def _exact_path(source: Path, kernel: str, target: Target) -> str:
    return str(source.with_name(file_name(source, kernel, target)))


@cache
def _read_file(
    source: Path, kernel: str, target: Target, version: tuple[int, ...] | None
) -> DecisionFile | None:
    """``version`` is what tells the exact file from the one before; None: there is none."""
    exact = Path(_exact_path(source, kernel, target))
    kind = str(target).partition(":")[0]
    heads = [f"{OURS}_{source.stem}_{kernel}_{kind}_", f"{THEIRS}_{source.stem}_{kind}_"]
    older = [path for head in heads for path in _older(source.parent, head, target)]
    for path in [exact, *older]:
        if path.is_file():
            module: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
            # Not by an import: bytecode of a file of the same second and size would be kept.
            exec(compile(path.read_bytes(), str(path), "exec"), module)
            if f"autotune_{kernel}" in module:
                functions = module[f"key_{kernel}"], module[f"autotune_{kernel}"]
                return DecisionFile(path, *functions, version)
    return None


def _older(folder: Path, head: str, target: Target) -> Iterator[Path]:
    """Files for GPUs that are not newer, the nearest first; CPUs have no order."""
    found = {path: _CAPABILITY.search(path.stem) for path in sorted(folder.glob(f"{head}*.py"))}
    known = {path: int(match.group(1)) for path, match in found.items() if match}
    usable = [path for path, number in known.items() if 0 < number <= target.capability]
    yield from sorted(usable, key=lambda path: known[path], reverse=True)


def file_text(
    kernel: str, parameters: Sequence[str], timings: Timings, root: Node, about: str
) -> str:
    """The file, with the losses that it was chosen by."""
    used = list(dict.fromkeys(leaf.config for leaf in leaves(root)))
    configs = "".join(f"    {dict(timings.configs[config])!r},\n" for config in used)
    listed = ", ".join(parameters)
    body = "\n".join(_branch_lines(timings, root, used, "    "))
    return (
        f'"""{about}"""\n\nCONFIGS = [\n{configs}]\n\n\n'
        f"def key_{kernel}({listed}):\n{body}\n\n\n"
        f"def autotune_{kernel}({listed}):\n    return CONFIGS[key_{kernel}({listed})]\n"
    )


def _branch_lines(timings: Timings, node: Node, used: list[int], indent: str) -> Iterator[str]:
    if isinstance(node, Leaf):
        loss = geomean_loss(timings.logs[shape][node.config] for shape in node.shapes)
        number = len(node.shapes)
        what = f"{number} shape{'s' * (number != 1)}, {100 * loss:.1f} % behind their own best"
        yield f"{indent}return {used.index(node.config)}  # {what}"
        return
    yield f"{indent}if {node.feature} <= {node.limit}:"
    yield from _branch_lines(timings, node.low, used, indent + "    ")
    yield from _branch_lines(timings, node.high, used, indent)
