"""Runs code that was compiled elsewhere. Every exported package has a copy of this file.

It needs torch and the standard library: no compiler, no Triton, not the package that made it.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch

FORMAT = 3
"""Of the manifest. A launcher reads its own format only."""
MANIFEST = "manifest.json"


class PackageError(RuntimeError):
    """A package that was changed, or that has no code for this machine."""


def cdiv(a: int, b: int) -> int:
    """Division that rounds up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << max(0, n - 1).bit_length()


@cache
def num_sms(device: int) -> int:
    """How many multiprocessors a GPU has."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def manifest_hash(manifest: dict[str, Any]) -> str:
    """Of everything in a manifest but this hash."""
    rest = {key: value for key, value in manifest.items() if key != "hash"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def refuse_others(kernel: str, error: Exception, **tensors: Any) -> None:
    """Raise TypeError if one of the arguments that were tensors is none: that caused the error."""
    for name, value in tensors.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(
                f"{kernel}: this package was made for a tensor as {name}, and was given "
                f"{value!r:.60} of type {type(value).__name__}"
            ) from error


@lru_cache(maxsize=1)
def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a package; raises if it, or a file that it lists, is not as it was made."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        made, found = manifest["format"], manifest["hash"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise PackageError(f"{folder / MANIFEST} cannot be read: {error}") from None
    if made != FORMAT:
        raise PackageError(
            f"{folder} has format {made}, made by tilesmith {manifest.get('tilesmith')}; its "
            f"launcher reads format {FORMAT}: export the kernel again"
        )
    if found != manifest_hash(manifest):
        raise PackageError(f"{folder / MANIFEST} was changed after export: export the kernel again")
    for name, expected in manifest["files"].items():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            raise PackageError(f"{path} is missing or was changed after export")
    return manifest


Reader = Callable[..., Any]
"""Of a function and the values at the launch point: checks them (ValueError), but for sizes that
are a key of ``Ready``, calls it with what the code takes, and gives its answer: None, or why the
code does not run here."""
Readers = Mapping[str, tuple[Callable[..., None], Reader]]
"""By the names of codes: what makes all checks, and the reader."""
Ready = dict[Any, tuple[Reader, Any]]
"""For sizes that were met before: the code that ran, and its reader."""


def load(
    module_file: str,
    readers: Readers,
    sizes: Callable[..., Any],
    sources: Mapping[str, Reader],
) -> tuple[Ready, Callable[..., None]]:
    """A table of codes that have run, and a function of the values at a launch point that adds one.

    Args:
        module_file: a file of the package.
        readers: those of the codes of this launch point, by their names.
        sizes: of the values, those that tell codes apart: the key of the table.
        sources: from the same values to what source takes, for codes that Triton could compile.
    """
    codes = Codes(Path(module_file).parent, readers, sizes, sources)
    return codes.ready, codes.launch


class Codes:
    """The codes of a launch point. The first runs that was made for the values of a call."""

    def __init__(
        self,
        folder: Path,
        readers: Readers,
        sizes: Callable[..., Any],
        sources: Mapping[str, Reader],
    ) -> None:
        manifest = read_manifest(folder)
        self._folder, self._kernel = folder, manifest["kernel"]
        self._sizes, self._sources = sizes, sources
        self.ready: Ready = {}
        self._all: list[tuple[str, str, Callable[..., None], tuple[Reader, Any]]] = []
        self._by_sizes: dict[Any, list[Any]] = {}
        for entry in manifest["code"]:
            if entry["name"] in readers:
                check, reader = readers[entry["name"]]
                pair = reader, make_code(folder, entry)
                self._all.append((entry["name"], entry["kind"], check, pair))
                self._by_sizes.setdefault(_as_key(entry["shapes"]), []).append(self._all[-1])

    def launch(self, *values: Any) -> None:
        """Run the first that fits; ValueError has what each was made for."""
        try:
            key = self._sizes(*values)
        except AttributeError:  # no tensor: each code says so
            key = None
        problems, elsewhere, kinds = list[str](), list[str](), set[str]()
        for name, kind, check, pair in self._by_sizes.get(key, self._all):
            try:
                check(*values)
                problem = pair[0](pair[1].run, *values)
            except (ValueError, AttributeError) as error:
                problem = str(error)
            else:
                elsewhere.append(name)
            if problem is None:
                # Where another of its kind was refused, that one may fit the next call.
                self.ready |= {key: pair} if kind not in kinds else {}
                return
            problems.append(f"{name}: {problem}")
            kinds.add(kind)
        for name in filter(self._sources.__contains__, elsewhere):
            problem = self._compile(name, values)
            if not problem:
                return
            problems.append(f"{name}: {problem}")
        listed = "\n  ".join(problems)
        raise ValueError(f"{self._kernel}: no code for this call\n  {listed}")

    def _compile(self, name: str, values: tuple[Any, ...]) -> str:
        """Run what was made for such a call and for another GPU from its source; or why not."""
        given = self._sources[name](*values)
        return _sibling("_from_source").run(self._folder / "source" / f"{name}.py", given)


def _as_key(shapes: Sequence[Sequence[int]]) -> Any:
    """Sizes of a manifest as calls give them: of one tensor without a tuple around."""
    listed = tuple(map(tuple, shapes))
    return listed[0] if len(listed) == 1 else listed


def make_code(folder: Path, entry: dict[str, Any]) -> Any:
    """Code of the manifest, as an object with ``run``."""
    if entry["kind"] == "cpu":
        return _sibling("_cpu").CpuCode(folder, entry)
    return _sibling("_gpu").GpuCode(folder, entry)


def _sibling(name: str) -> Any:
    """Another file of the package, when it is needed."""
    return importlib.import_module(f"{__package__}.{name}")
