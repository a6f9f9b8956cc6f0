"""What a release is made of: a wheel with the same bytes each time, and the list of what it needs.

``python -m tools.release -o dist`` builds the wheel twice, from two copies of what git has, and
stops if their bytes differ. Times in it are those of the last commit. Beside it lies ``sbom.json``
(CycloneDX): the packages that an installation without extras brings, with their versions here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SPEC_VERSION = "1.5"


def commit_time() -> str:
    """Of the last commit, in seconds."""
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def build_wheel(folder: Path, epoch: str) -> Path:
    """A wheel of what git would take along, built in ``folder``."""
    source = folder / "source"
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, map(os.fsdecode, names)):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    # Modes and times of files are the copy's own business.
    for path in sorted(source.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    build = f"from setuptools import build_meta as b; b.build_wheel({str(folder)!r})"
    settings = ["env", f"SOURCE_DATE_EPOCH={epoch}", "PYTHONHASHSEED=0"]
    command = [*settings, sys.executable, "-c", build]
    subprocess.run(command, cwd=source, capture_output=True, check=True)
    (made,) = folder.glob("*.whl")
    return made


def build_twice(work: Path, epoch: str) -> Path:
    """The wheel; raises SystemExit where a second build has other bytes."""
    wheels: list[Path] = []
    for name in ("first", "second_copy"):
        (work / name).mkdir()
        wheels.append(build_wheel(work / name, epoch))
    first, second = (sha256(path.read_bytes()).hexdigest() for path in wheels)
    if first != second:
        raise SystemExit(f"two builds differ: {first} and {second}")
    return wheels[0]


def requirements(package: str) -> Iterator[str]:
    """Names of what a package needs here, without its extras."""
    for text in distribution(package).requires or []:
        found = Requirement(text)
        if found.marker is None or found.marker.evaluate({"extra": ""}):
            yield found.name


def closure(package: str) -> list[str]:
    """Everything that comes with a package, by normal names."""
    seen: dict[str, None] = {}
    waiting = list(requirements(package))
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        try:
            waiting += requirements(name)
        except PackageNotFoundError:
            continue  # for another system
        seen[name] = None
    return sorted(seen)


def component(name: str) -> dict[str, Any]:
    """A package as CycloneDX has it."""
    found = distribution(name)
    version, about = found.version, found.metadata
    license_text = about["License-Expression"] or about["License"] or ""
    short = license_text.strip().splitlines()[0][:80] if license_text.strip() else "unknown"
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
        "licenses": [{"license": {"name": short}}],
    }


def make_sbom(version: str, wheel_hash: str) -> dict[str, Any]:
    """The list of packages; the same for the same environment."""
    own = {"type": "library", "name": "tilesmith", "version": version}
    own |= {"hashes": [{"alg": "SHA-256", "content": wheel_hash}]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {"component": own},
        "components": [component(name) for name in closure("tilesmith")],
    }


def main() -> None:
    """Build, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tilesmith_release_") as work:
        wheel = build_twice(Path(work), commit_time())
        made = shutil.copy(wheel, given.output)
    digest = sha256(Path(made).read_bytes()).hexdigest()
    version = Path(made).name.split("-")[1]
    text = json.dumps(make_sbom(version, digest), indent=2, sort_keys=True)
    (given.output / "sbom.json").write_text(text + "\n", encoding="utf-8")
    print(f"{made}\nsha256 {digest}\n{given.output / 'sbom.json'}")


if __name__ == "__main__":
    main()
