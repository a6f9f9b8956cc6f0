"""Places are found in frames and syntax trees, with the columns of the expression."""

from __future__ import annotations

import ast
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from tilesmith.cli.main import SHIPPED
from tilesmith.diagnostics import location
from tilesmith.diagnostics.location import (
    KERNELS_DIRECTORY,
    PACKAGE_DIRECTORY,
    STANDARD_LIBRARY,
    UNKNOWN,
    SourceLocation,
    capture_location,
    location_of_node,
    location_of_traceback,
)

needs_columns = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="frames have no columns before Python 3.11"
)


def run_as(file: str, source: str, **names: Any) -> dict[str, Any]:
    """Run source under a file name, as if it came from that file."""
    names["capture"] = capture_location
    exec(compile(source, file, "exec"), names)
    return names


def innermost(loc: SourceLocation) -> tuple[str, int, str]:
    return loc.file, loc.line, loc.function


def test_the_innermost_user_frame_is_found():
    source = "def helper():\n    return capture()\ndef kernel():\n    return helper()\n"
    loc = run_as("user.py", source)["kernel"]()
    assert innermost(loc) == ("user.py", 2, "helper")
    assert loc.caller is not None
    assert innermost(loc.caller) == ("user.py", 4, "kernel")


def test_package_frames_are_passed_over_and_end_the_chain():
    tracer = run_as(f"{PACKAGE_DIRECTORY}frontend/tracer.py", "def call(f):\n    return f()\n")
    add = run_as(f"{PACKAGE_DIRECTORY}frontend/ops.py", "def add():\n    return capture()\n")["add"]
    user = run_as("user.py", "def kernel():\n    return add()\n", add=add)
    loc = tracer["call"](user["kernel"])
    assert innermost(loc) == ("user.py", 2, "kernel")
    assert loc.caller is None


def test_library_frames_are_passed_over():
    torch_add = run_as("/site/torch/ops.py", "def add():\n    return capture('/site/torch/')\n")
    user = run_as("user.py", "def kernel():\n    return add()\n", add=torch_add["add"])
    assert user["kernel"]().file == "user.py"


def test_shipped_kernels_are_user_code():
    file = f"{KERNELS_DIRECTORY}softmax.py"
    assert run_as(file, "def softmax():\n    return capture()\n")["softmax"]().file == file
    assert Path(KERNELS_DIRECTORY) == SHIPPED


def test_our_own_code_is_not_the_users_where_it_is_installed(monkeypatch: pytest.MonkeyPatch):
    home = f"{STANDARD_LIBRARY}site-packages/tilesmith/"
    monkeypatch.setattr(location, "PACKAGE_DIRECTORY", home)
    trace = run_as(f"{home}frontend/trace_here.py", "def trace():\n    return capture()\n")
    user = run_as("user.py", "def kernel():\n    return trace()\n", trace=trace["trace"])
    assert user["kernel"]().file == "user.py"


def test_installed_packages_are_user_code_but_the_standard_library_is_not():
    folder = STANDARD_LIBRARY + "site-packages/kernels.py"
    assert run_as(folder, "def kernel():\n    return capture()\n")["kernel"]().file == folder
    reduce = run_as(STANDARD_LIBRARY + "functools.py", "def reduce():\n    return capture()\n")
    user = run_as("user.py", "def kernel():\n    return reduce()\n", reduce=reduce["reduce"])
    assert user["kernel"]().file == "user.py"


def test_a_folder_whose_name_begins_like_the_package_is_user_code():
    file = PACKAGE_DIRECTORY.rstrip("/") + "_experiments/kernel.py"
    assert run_as(file, "def kernel():\n    return capture()\n")["kernel"]().file == file


@needs_columns
def test_columns_of_a_call():
    loc = run_as("user.py", "def kernel(x):\n    y = x + capture().columns[1]\n    return y\n")
    assert loc["kernel"](0) == len("    y = x + capture()")


@needs_columns
def test_columns_of_an_expression_over_several_lines_are_open():
    loc = run_as("user.py", "def kernel():\n    return capture(\n    )\n")["kernel"]()
    assert loc.line == 2
    assert loc.columns == (len("    return "), None)


def raised_by(function: Any, *args: Any) -> BaseException:
    try:
        function(*args)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_a_traceback_gives_the_innermost_user_frame_and_its_callers():
    package = run_as(f"{PACKAGE_DIRECTORY}frontend/ops.py", "def add():\n    raise ValueError\n")
    source = "def helper():\n    return add()\ndef kernel():\n    return helper()\n"
    user = run_as("user.py", source, add=package["add"])
    tracer = run_as(f"{PACKAGE_DIRECTORY}frontend/tracer.py", "def call(f):\n    return f()\n")
    loc = location_of_traceback(raised_by(tracer["call"], user["kernel"]).__traceback__)
    assert innermost(loc) == ("user.py", 2, "helper")
    assert loc.caller is not None
    assert innermost(loc.caller) == ("user.py", 4, "kernel")
    # What called the tracer, this test, is no caller.
    assert loc.caller.caller is None


@needs_columns
def test_a_traceback_keeps_the_place_of_the_exception_not_of_its_handler():
    source = "def kernel():\n    try:\n        x = 1 / 0\n    finally:\n        y = 2\n"
    loc = location_of_traceback(raised_by(run_as("user.py", source)["kernel"]).__traceback__)
    assert loc.line == 3
    assert loc.columns == (len("        x = "), len("        x = 1 / 0"))


def test_generated_code_is_no_user_code():
    made = run_as("<string>", "def __init__():\n    raise ValueError\n")["__init__"]
    user = run_as("user.py", "def kernel():\n    made()\n", made=made)
    assert location_of_traceback(raised_by(user["kernel"]).__traceback__).file == "user.py"


def test_a_traceback_without_user_frames_has_no_place():
    assert location_of_traceback(None) == UNKNOWN


def test_the_chain_of_callers_is_bounded():
    source = "def down(n):\n    return capture() if n == 0 else down(n - 1)\n"
    loc = run_as("user.py", source)["down"](100)
    depth = 0
    while loc.caller is not None:
        loc, depth = loc.caller, depth + 1
    assert depth == 8


@pytest.mark.parametrize(
    ("source", "marked"),
    [
        ("x = a + b", "x = a + b"),
        ("for t in hl.tile(n):\n    pass", "for t in hl.tile(n)"),
        ("if a < b:\n    pass\nelse:\n    pass", "if a < b"),
        ("while a:\n    pass", "while a"),
        ("with a as b, c as d:\n    pass", "with a as b, c as d"),
        ("try:\n    pass\nexcept E:\n    pass", "try"),
        ("def f(a, b):\n    pass", "def f(a, b"),
        ("class C(B):\n    pass", "class C(B"),
        ("match a:\n    case 1:\n        pass", "match a"),
        ("lambda a: a", "lambda a: a"),
        ("a if b else c", "a if b else c"),
    ],
)
def test_a_compound_statement_is_marked_by_its_header(source, marked):
    node = ast.parse(source).body[0]
    start, end = location_of_node(node, "user.py").columns or (0, 0)
    assert source.splitlines()[0][start:end] == marked


def test_an_expression_over_several_lines_is_open_ended():
    node = ast.parse("x = f(\n    1,\n)").body[0]
    assert location_of_node(node, "user.py", "kernel").columns == (0, None)


def test_a_node_without_a_place_has_no_columns():
    assert location_of_node(ast.Load(), "user.py").columns is None


def test_locations_survive_pickling_with_their_columns():
    loc = run_as("user.py", "def kernel():\n    return capture()\n")["kernel"]()
    twin = pickle.loads(pickle.dumps(loc))
    assert twin == loc
    assert twin.columns == loc.columns
    assert twin.caller == loc.caller


def test_a_location_prints_without_its_folder():
    assert str(SourceLocation(str(Path("a") / "b.py"), 7)) == "b.py:7"
    assert str(UNKNOWN) == "<unknown>:0"
