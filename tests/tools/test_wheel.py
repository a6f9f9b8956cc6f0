"""The wheel and the source distribution: built, unpacked and used outside of the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path

import pytest

from tilesmith.version import __version__
from tools.release import build_twice, make_sbom
from tools.versions import make_sdist, readme_commands, run_commands, run_program

ROOT = Path(__file__).parents[2]
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: building writes beside the source."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    leave_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "examples", "benchmarks"):
        shutil.copytree(ROOT / name, source / name, ignore=leave_out)
    for name in FILES:
        shutil.copy(ROOT / name, source)
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """Unpacked."""
    unpacked = built.parent / "unpacked"
    with zipfile.ZipFile(built) as archive:
        archive.extractall(unpacked)
    return unpacked


@pytest.fixture(scope="module")
def installed(built: Path) -> Path:
    """The interpreter of a new environment, outside of the checkout, with the wheel in it.

    Nothing is downloaded: what the wheel needs is found where this process finds it. The checkout
    is not: files of that folder that lead there are not read.
    """
    home = built.parent / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    python = home / "bin" / "python"
    install = ["install", "--no-deps", "--no-index", "--quiet", str(built)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_it_is_the_wheel_that_is_installed(installed: Path, tmp_path: Path) -> None:
    asked = "import tilesmith; print(tilesmith.__file__, tilesmith.__version__)"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(installed), "-c", asked]
    found = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True).split()
    assert Path(found[0]).is_relative_to(installed.parents[1])
    assert found[1] == __version__


def test_every_command_of_the_readme_works_in_a_new_environment(
    installed: Path, tmp_path: Path
) -> None:
    # On a busy machine fifteen seconds may pass before a first candidate is measured.
    commands = [command.replace("--budget 15", "--budget 90") for command in readme_commands()]
    assert len(commands) > 6
    lines = [run_program(installed, tmp_path), *run_commands(installed, commands, tmp_path)]
    assert not [line for line in lines if line.startswith("FAILED")]


def test_it_takes_no_names_of_others(wheel: Path) -> None:
    names = {path.name for path in wheel.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"tilesmith"}


def test_its_requirements_can_be_met(wheel: Path) -> None:
    (metadata,) = wheel.glob("*.dist-info/METADATA")
    required = Parser().parsestr(metadata.read_text()).get_all("Requires-Dist")
    assert required is not None
    # torch 2.9 pins Triton 3.5, 2.10 takes 3.6.
    assert "torch>=2.10" in required
    assert Parser().parsestr(metadata.read_text())["Version"] == __version__


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "examples.softmax:softmax", "--args", "randn(64, 64)"],
        ["bench", "--list", "--kernel", "softmax,gemm"],
        ["export", "examples.softmax:softmax", "--args", "randn(8, 8)", "-o", "softmax_package"],
        ["explore", "examples.softmax:softmax", "--args", "randn(8, 8)", "-o", "softmax.html"],
    ],
    ids=lambda words: words[0],
)
def test_commands_work_outside_of_the_checkout(
    wheel: Path, tmp_path: Path, words: list[str]
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    command = [sys.executable, "-m", "tilesmith", *words]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert not ended.returncode, ended.stderr
    assert "softmax" in ended.stdout


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="what belongs to it is asked of git")
def test_the_source_distribution_runs_its_own_tests(tmp_path: Path) -> None:
    with tarfile.open(make_sdist(tmp_path)) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (folder,) = (tmp_path / "unpacked").iterdir()
    chosen = ["tests/dispatch", "tests/architecture/test_repository_hygiene.py", "tests/ir"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert not ended.returncode, ended.stdout[-2000:]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="what belongs to it is asked of git")
def test_a_wheel_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    first = build_twice(tmp_path, "1750000000")  # raises where they differ
    with zipfile.ZipFile(first) as archive:
        assert {item.date_time for item in archive.infolist()} == {(2025, 6, 15, 15, 6, 40)}


def test_the_list_of_packages_has_what_an_installation_brings() -> None:
    found = make_sbom("1.2.3", "0" * 64)
    names = {item["name"]: item["version"] for item in found["components"]}
    assert {"torch", "triton", "llvmlite", "numpy", "typer", "sympy"} <= names.keys()
    assert not {"ray", "pytest", "matplotlib"} & names.keys()  # of extras
    assert names["torch"] == version("torch")
    assert found["metadata"]["component"]["version"] == "1.2.3"
    assert make_sbom("1.2.3", "0" * 64) == found
