"""``python -m tools.sanitize.worker``: some of the subjects, one after the other; a line for each.

Before a config runs its name is written, so that whoever waits knows what hung or broke the device.
What stands in the file already is not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, TextIO

import torch

from tests.examples.case import copies
from tests.fuzzing.simulated import run_ptx
from tools.sanitize.borders import Yard, examine, fenced_args
from tools.sanitize.subjects import OWN, Item, Subject, items, subjects

COUNT = 3
"""Configs of each structure of a kernel."""
NO_ROOM = ("out of resource", "too few", "shared memory")
STICKY = (
    "illegal memory access",
    "misaligned address",
    "unspecified launch failure",
    "illegal instruction",
)


class Worker:
    """Runs one part of all subjects on a device."""

    def __init__(self, options: argparse.Namespace, out: TextIO) -> None:
        self._is_ptx = options.device == "ptx"
        self._device: str = "cpu" if self._is_ptx else options.device
        self._is_plain: bool = options.plain
        self._end = options.until
        self._part, self._parts = options.part, options.parts
        self._skipped = {line["begins"] for line in read_lines(options.out) if "begins" in line}
        self._out = out

    def run(self) -> None:
        """All of the part that time allows."""
        for item, bound in self._ordered():
            if time.time() > self._end:
                break
            if item.name in self._skipped:
                continue
            self._tell(begins=item.name, structure=item.structure)
            found = self._examined(item, bound)
            self._tell(ends=item.name, structure=item.structure, **found)
            if any(text in found.get("failed", "") for text in STICKY):
                sys.exit(3)
        self._tell(done=True)

    def _tell(self, **line: Any) -> None:
        print(json.dumps(line), file=self._out, flush=True)

    def _ordered(self) -> Iterator[tuple[Item, Any]]:
        """A config of each structure of each subject, other structures first; then the rest."""
        later: list[tuple[Item, Any]] = []
        for number, subject in enumerate(subjects()):
            # Two in a row are one of each kind.
            is_mine = number // 2 % self._parts == self._part
            # Tools know borders within a tensor's memory as little as those around it.
            if not is_mine or (self._is_plain and subject.pitch):
                continue
            if time.time() > self._end:
                return
            try:
                bound = self._bind(subject)
                listed = list(items(subject, bound, COUNT))
            except Exception as error:  # host code may take no such views
                self._tell(refused=subject.name, why=str(error).partition("\n")[0])
                continue
            seen: set[str] = set()
            for item in sorted(listed, key=lambda item: item.structure == OWN):
                if item.structure in seen:
                    later.append((item, bound))
                    continue
                seen.add(item.structure)
                yield item, bound
        yield from later

    def _bind(self, subject: Subject) -> Any:
        """For arguments that lie in memory as those that it will run with."""
        args = subject.make(self._device)
        target = {"target": "cuda:90"} if self._is_ptx else {}
        return subject.kernel.bind(fenced_args(args, Yard(0), subject.pitch), **target)

    def _examined(self, item: Item, bound: Any) -> dict[str, Any]:
        subject, begin = item.subject, time.monotonic()
        args = subject.make(self._device)
        try:
            run = bound.compile_config(item.config)
            if self._is_plain:
                run(*args)
                _wait(self._device)
                return {"seconds": time.monotonic() - begin}
            before, check = copies(args), subject.check
            found = examine(
                run,
                args,
                check and (lambda result: check(before, result)),
                device=self._device,
                pitch=subject.pitch,
                is_ordered=bound.specialization.find_order_dependence(item.config) is None,
            )
        except Exception as error:
            text = f"{type(error).__name__}: {error}".strip()
            kind = "no_room" if any(part in text for part in NO_ROOM) else "failed"
            return {kind: text[:400]}
        return {
            "written": found.written,
            "depends": found.depends,
            "differs": found.differs,
            "wrong": found.wrong,
            "fences": found.num_fences,
            "seconds": time.monotonic() - begin,
        }


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What workers have written; a line that was cut is left out."""
    found: list[dict[str, Any]] = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


def _wait(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--until", type=float, default=inf, help="as time.time() tells it")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--plain", action="store_true", help="run only: a tool looks on")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.device == "ptx":
        run_ptx()
    with options.out.open("a") as out:
        Worker(options, out).run()


if __name__ == "__main__":
    main()
