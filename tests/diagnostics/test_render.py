"""The marker stands under the offending expression, whatever the line is made of."""

from __future__ import annotations

import ast

import pytest

from tilesmith.diagnostics.catalogue import render_report
from tilesmith.diagnostics.location import SourceLocation, location_of_node
from tilesmith.exc import ControlFlowTensorMismatch, ShapeMismatch

KERNEL = """\
import torch
import tilesmith.language as hl


def center(x, y):
    return x - y


def kernel(x):
    for tile in hl.tile(x.size(0)):
        acc = hl.zeros([tile])
        for inner in hl.tile(4):
            acc = acc + x[tile].double()
        x[tile] = center(x[tile], acc)
"""


@pytest.fixture
def kernel_file(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNEL)
    return str(path)


def place(file: str, text: str, function: str = "kernel") -> SourceLocation:
    """The place of the first statement or expression spelled ``text``."""
    for node in ast.walk(ast.parse(KERNEL)):
        if ast.unparse(node) == text and hasattr(node, "lineno"):
            return location_of_node(node, file, function)
    raise AssertionError(text)


def marked(tmp_path, line: str, span: tuple[int, int | None]) -> tuple[str, str]:
    """The source line and the marker line shown for ``span`` of ``line``."""
    path = tmp_path / "one_line.py"
    path.write_text(line + "\n")
    text = render_report("m", {}, SourceLocation(str(path), 1, span=span))
    shown = text.splitlines()[-2:]
    return shown[0].split(" | ", 1)[1], shown[1].split(" | ", 1)[1]


def test_an_error_in_a_kernel(kernel_file, golden):
    loc = place(kernel_file, "acc + x[tile].double()")
    golden(f"{ShapeMismatch(operation='add', left='[tile, 4]', right='[4, tile]', loc=loc)}\n")


def test_an_error_in_a_helper_shows_its_caller(kernel_file, golden):
    caller = place(kernel_file, "center(x[tile], acc)")
    inner = place(kernel_file, "x - y", "center")
    loc = SourceLocation(inner.file, inner.line, inner.function, caller=caller, span=inner.span)
    golden(f"{ShapeMismatch(operation='sub', left='[tile]', right='[4]', loc=loc)}\n")


def test_a_recursion_is_shown_once(kernel_file):
    inner = place(kernel_file, "x - y", "center")
    loc = inner
    for _ in range(3):
        loc = SourceLocation(inner.file, inner.line, inner.function, caller=loc, span=inner.span)
    assert "called from" not in render_report("m", {}, loc)


def test_related_places_are_shown_with_their_label(kernel_file, golden):
    error = ControlFlowTensorMismatch(
        name="acc",
        before="float32[tile]",
        after="float64[tile]",
        loc=place(kernel_file, "acc = acc + x[tile].double()"),
        related={"float32[tile] comes from": place(kernel_file, "acc = hl.zeros([tile])")},
    )
    golden(f"{error}\n")


def test_a_warning_in_a_kernel(kernel_file, golden):
    from tilesmith.exc import TiledKMatmulAccumulationWarning

    loc = place(kernel_file, "acc = acc + x[tile].double()")
    how = "that are rounded to half precision first"
    golden(TiledKMatmulAccumulationWarning(name="acc", how=how, loc=loc).report() + "\n")


def test_carets_cover_exactly_the_columns(tmp_path):
    assert marked(tmp_path, "y = a + bc", (4, 10)) == ("y = a + bc", "    ^^^^^^")


def test_tabs_are_shown_as_spaces_and_counted_so(tmp_path):
    text, marker = marked(tmp_path, "\ty = a +\tb", (9, 10))
    assert "\t" not in text
    assert text[marker.index("^")] == "b"


def test_wide_characters_take_two_columns(tmp_path):
    line = 'print("漢字", x)'
    span = (line.encode().index(b"x"), line.encode().index(b"x") + 1)
    _, marker = marked(tmp_path, line, span)
    # Six columns for `print(`, two for quotes, four for the two characters, two for `, `.
    assert marker == " " * 14 + "^"


def test_combining_characters_take_no_column(tmp_path):
    line = 's = "e\u0301" + x'
    start = line.encode().index(b"x")
    _, marker = marked(tmp_path, line, (start, start + 1))
    assert marker == " " * len('s = "e" + ') + "^"


def test_accented_letters_are_counted_as_letters_not_bytes(tmp_path):
    line = "größe = größe + x"
    raw = line.encode()
    _, marker = marked(tmp_path, line, (raw.index(b"= ") + 2, len(raw)))
    assert marker == " " * 8 + "^" * 9


def test_an_expression_over_several_lines_is_marked_on_the_first(tmp_path):
    assert marked(tmp_path, "y = f(  # call", (4, None))[1] == "    ^^^^^^^^^^…"


def test_a_statement_with_a_block_is_marked_up_to_its_colon(tmp_path):
    assert marked(tmp_path, "for t in hl.tile(n):", (0, None))[1] == "^" * 19


def test_an_empty_span_gets_one_caret(tmp_path):
    assert marked(tmp_path, "y = a", (4, 4))[1] == "    ^"


def test_columns_past_the_end_mark_the_whole_line(tmp_path):
    assert marked(tmp_path, "    y = a", (90, 95))[1] == "    ^^^^^"


def test_without_columns_the_whole_line_is_marked(tmp_path):
    path = tmp_path / "k.py"
    path.write_text("    y = a\n")
    lines = render_report("m", {}, SourceLocation(str(path), 1)).splitlines()
    assert lines[-1] == "    |     ^^^^^"


def test_a_file_that_cannot_be_read_shows_only_the_place():
    text = render_report("m", {"fix": "f"}, SourceLocation("<stdin>", 3, "kernel"))
    assert text == "m\n  --> <stdin>:3, in kernel\n    = fix: f"


def test_without_a_place_only_the_texts_are_shown():
    assert render_report("m", {"expected": "e", "found": ""}) == "m\n    = expected: e"


def test_later_lines_of_a_part_are_aligned():
    text = render_report("m", {"fix": "one\ntwo"})
    assert text.splitlines()[1:] == ["    = fix: one", "           two"]


def test_the_gutter_fits_the_longest_line_number(tmp_path):
    path = tmp_path / "long.py"
    path.write_text("x\n" * 12345)
    related = {"also": SourceLocation(str(path), 7)}
    lines = render_report("m", {"fix": "f"}, SourceLocation(str(path), 12345), related).splitlines()
    assert "12345 | x" in lines
    assert "    7 | x" in lines
    assert {line.index("|") for line in lines if " | " in line or line.endswith("|")} == {6}


def test_places_are_links_that_open_from_the_working_folder(tmp_path, monkeypatch):
    file = tmp_path / "folder" / "kernels.py"
    loc = SourceLocation(str(file), 3)
    monkeypatch.chdir(tmp_path)
    assert loc.link == "folder/kernels.py:3"
    monkeypatch.chdir(tmp_path.parent)
    assert loc.link == f"{tmp_path.name}/folder/kernels.py:3"
    monkeypatch.chdir("/usr")
    assert loc.link == f"{file}:3"
    assert SourceLocation("<stdin>", 3).link == "<stdin>:3"
