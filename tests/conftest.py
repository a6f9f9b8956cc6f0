"""Options, markers and fixtures shared by all tests."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from datetime import date
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest

try:
    import hypothesis
except ImportError:  # a device machine may lack it; no device test uses it
    hypothesis = None

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"
DAY = date.today().toordinal()
DAILY_SHARES = (
    ("frontend/test_torch_functions.py", "reference", 5),
    ("frontend/test_torch_reductions.py", "reference", 5),
    ("frontend/test_torch_scans.py", "reference", 5),
    ("conformance/test_on_the_cpu.py", "older_machines", 4),
    ("conformance/test_on_the_cpu.py", "runtime_sizes", 2),
    ("conformance/test_triton_code.py", "saved_modules", 2),
    ("examples/test_dynamic_shapes.py", "reference", 3),
    ("examples/test_dynamic_shapes.py", "", 2),
    ("interpreter/test_elementwise.py", "", 2),
    ("backends/cpu/test_edge_sizes.py", "", 2),
    ("examples/test_native_code.py", "older_machines", 4),
    ("examples/test_against_fp64.py", "bfloat16", 3),
    ("examples/test_against_fp64.py", "float16", 3),
    ("bench/test_suites.py", "our_kernels", 3),
    ("schedule/test_cpu_examples.py", "", 4),
    ("schedule/test_fact_text.py", "every_example", 3),
)
"""File, part of the id, and in how many days all of them have run; --full runs all at once."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write expected output instead of comparing"
    )
    parser.addoption(
        "--full", action="store_true", help="also run tests marked full, with more random examples"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Compiled code is shared by the workers of one run and goes with them.
    if "TILESMITH_CACHE_DIR" not in os.environ:
        folder = tempfile.mkdtemp(prefix="tilesmith-tests-")
        os.environ["TILESMITH_CACHE_DIR"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    if hypothesis is None:
        return
    # The short run is the same every time; the long one looks for what nobody has seen yet.
    hypothesis.settings.register_profile(
        "short", max_examples=30, deadline=None, derandomize=True, database=None
    )
    hypothesis.settings.register_profile("full", max_examples=300, deadline=None)
    hypothesis.settings.load_profile("full" if config.getoption("--full") else "short")


@cache
def has_device() -> bool:
    """Whether torch sees a GPU; asked only when a device test is collected."""
    import torch

    return torch.cuda.is_available()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(TESTS / "device"):
            item.add_marker(pytest.mark.device)
        if item.get_closest_marker("device") and not has_device():
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))
        if item.get_closest_marker("full") and not config.getoption("--full"):
            item.add_marker(pytest.mark.skip(reason="runs only with --full"))
    if not config.getoption("--full"):
        others = [item for item in items if not is_due(item)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if is_due(item)]


def is_due(item: pytest.Item) -> bool:
    """Whether a test runs today: of long tables one share a day, another one tomorrow."""
    place = item.path.relative_to(TESTS).as_posix()
    for file, part, days in DAILY_SHARES:
        if place == file and part in item.nodeid:
            return (crc32(item.nodeid.encode()) + DAY) % days == 0
    return True


def golden_path(test_file: Path, test_name: str, part: str = "") -> Path:
    """``tests/golden/<folder of the test>/<test>[-part].txt``."""
    folder = GOLDEN / test_file.parent.relative_to(TESTS)
    stem = re.sub(r"[^\w.-]+", "_", test_name.removeprefix("test_")).strip("_")
    return folder / (f"{stem}-{part}.txt" if part else f"{stem}.txt")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare text with the recorded text of this test; ``--update-golden`` records it.

    ``golden(text)``, or ``golden(text, part="ir")`` where one test records several texts.
    """
    update = request.config.getoption("--update-golden")

    def check(text: str, part: str = "") -> None:
        path = golden_path(request.path, request.node.name, part)
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        assert path.exists(), f"no golden file {path.relative_to(TESTS)}; run with --update-golden"
        assert text == path.read_text(), f"differs from {path.relative_to(TESTS)}"

    return check
