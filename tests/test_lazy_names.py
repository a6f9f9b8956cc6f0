"""Public names load on first use, and are then what they would be without that."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import tilesmith
from tests.warm_python import warm_python

SOURCE = Path(tilesmith.__file__)


def run_alone(code: str, python: tuple[str, ...] = (sys.executable,)) -> str:
    """What a fresh process prints."""
    done = subprocess.run(
        [*python, "-W", "error", "-c", code],
        cwd=SOURCE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def checked_names() -> dict[str, str]:
    """Name to place, as type checkers are told."""
    tree = ast.parse(SOURCE.read_text())
    block = next(item for item in tree.body if isinstance(item, ast.If))
    found = {"jit": "tilesmith.jit.typed:kernel"}
    for item in block.body:
        if isinstance(item, ast.FunctionDef):  # its module stands above what may be imported
            found[item.name] = f"tilesmith.autotuner:{item.name}"
        if isinstance(item, ast.ImportFrom) and item.module != "collections.abc":
            link = "." if item.module == "tilesmith" else ":"
            found.update({name.name: f"{item.module}{link}{name.name}" for name in item.names})
    return found


def test_the_table_is_what_type_checkers_and_star_imports_see():
    assert checked_names() == tilesmith._PLACES
    assert sorted(tilesmith.__all__) == sorted(tilesmith._PLACES)
    assert set(tilesmith.__all__) <= set(dir(tilesmith))


@pytest.mark.parametrize("name", tilesmith.__all__)
def test_a_name_is_the_object_in_its_place(name):
    module, _, attribute = tilesmith._PLACES[name].partition(":")
    place = importlib.import_module(module)
    assert getattr(tilesmith, name) is (getattr(place, attribute) if attribute else place)


def test_light_names_load_no_torch_and_later_imports_change_no_name():
    names = run_alone(
        "import sys, tilesmith as helion\n"
        "from tilesmith import Config, Settings, exc\n"
        "assert 'torch' not in sys.modules\n"
        "import tilesmith.jit.kernel\n"
        "assert helion.jit is helion.kernel and callable(helion.jit)\n"
        "assert not hasattr(helion, '__wrapped__')\n"
        "space = {}\n"
        "exec('from tilesmith import *', space)\n"
        "print(*space)\n"
    ).split()
    assert sorted(set(names) - {"__builtins__"}) == sorted(tilesmith.__all__)


def test_folders_are_there_after_importing_the_package_alone():
    code = "import tilesmith\nprint(tilesmith.ir.printer.print_function.__name__)"
    printed = run_alone(code, warm_python())
    assert printed == "print_function\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'tilesmith' has no attribute 'kernal'"):
        getattr(tilesmith, "kernal")  # noqa: B009
    with pytest.raises(ImportError, match="cannot import name 'kernal'"):
        exec("from tilesmith import kernal")
