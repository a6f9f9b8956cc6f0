"""Which object a reference names, from where, and what is said when there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tilesmith.cli.kernel_reference import ReferenceNotFoundError, find_function, find_kernel

KERNEL = """
import torch
import tilesmith, tilesmith.language as hl

@tilesmith.kernel
def double(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 2
    return out
"""


@pytest.fixture(autouse=True)
def workshop(tmp_path, monkeypatch):
    """A folder of files; what is imported from them is forgotten after the test."""
    for name in ("path", "meta_path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    before = set(sys.modules)
    gallery, package = tmp_path / "gallery", tmp_path / "parcel" / "inner"
    package.mkdir(parents=True)
    gallery.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (gallery / "plain.py").write_text(KERNEL)
    (gallery / "from_outside.py").write_text("from gallery.plain import double")
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "own.py").write_text(KERNEL)
    (package / "relative.py").write_text("from .own import double\nfrom parcel import inner")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("gallery", "parcel", "plain", "from_outside", "helion"):
            del sys.modules[name]


@pytest.mark.parametrize("error", ["ValueError", "TypeError"])
def test_what_a_module_raises_is_no_wrong_reference(workshop, error):
    (workshop / "gallery" / "plain.py").write_text(f"raise {error}('its own')")
    with pytest.raises((ValueError, TypeError), match="its own"):
        find_kernel("gallery.plain:double")


@pytest.mark.parametrize("place", ["", ".", ".gallery"])
def test_what_cannot_be_imported_at_all(place):
    with pytest.raises(ReferenceNotFoundError, match="neither a module nor"):
        find_kernel(f"{place}:double")


@pytest.mark.parametrize(
    "place",
    [
        "gallery.plain",
        "gallery/plain.py",
        "gallery.from_outside",
        "gallery/from_outside.py",
        "parcel.inner.relative",
        "parcel/inner/relative.py",
    ],
)
def test_modules_and_files_below_the_working_folder(place):
    assert find_kernel(f"{place}:double").name == "double"
    assert find_function(f"{place}:double") is find_kernel(place)


@pytest.mark.parametrize("place", ["gallery/plain.py", "parcel/inner/relative.py"])
@pytest.mark.parametrize("way", ["{}", "../{}"])
def test_files_from_another_folder(place, way, workshop, monkeypatch):
    monkeypatch.chdir(workshop / "elsewhere")
    path = way.format(place) if way != "{}" else workshop / place
    assert find_kernel(f"{path}:double").name == "double"


def message_of(reference: str) -> str:
    with pytest.raises(ReferenceNotFoundError) as caught:
        find_kernel(reference)
    return str(caught.value)


def test_a_module_that_is_elsewhere(workshop, monkeypatch):
    folder = workshop / "elsewhere"
    monkeypatch.chdir(folder)
    first, second, *folders, last = message_of("gallery.plain:double").splitlines()
    assert first == "no module gallery.plain; nothing has a similar name"
    assert second == "gallery was looked for in"
    assert folders[0] == f"  {folder}"
    assert len(folders) == len(set(folders)) > 2
    assert last == (
        "go to the folder that has gallery/plain.py, "
        "or name the file: path/to/gallery/plain.py:NAME"
    )


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_module_may_have_a_folder_or_a_file_of_its_name_beside_it(kind, workshop, monkeypatch):
    monkeypatch.syspath_prepend(workshop / "gallery")
    monkeypatch.chdir(workshop / "gallery")
    for name in ("nothing", "plain"):
        (Path.mkdir if kind == "folder" else Path.touch)(Path(name))
    with pytest.raises(ReferenceNotFoundError, match=f"nothing is a {kind}; expected module:"):
        find_kernel("nothing:double")
    assert find_kernel("plain:double").name == "double"


def test_a_package_that_lacks_a_module():
    lines = message_of("parcel.inner.owm:double").splitlines()
    assert lines[0] == "no module parcel.inner.owm; did you mean own?"
    assert lines[1:3] == [
        "parcel.inner.owm was looked for in",
        f"  {Path('parcel/inner').resolve()}",
    ]


def test_a_file_that_needs_its_folder_from_outside(workshop, monkeypatch):
    monkeypatch.chdir(workshop / "elsewhere")
    assert message_of("../gallery/from_outside.py:double") == (
        f"../gallery/from_outside.py imports gallery: run this in {workshop}, which has gallery"
    )


def test_files_that_are_not_there(workshop):
    assert message_of("gallery/plane.py:double") == (
        "no file gallery/plane.py; did you mean plain.py?\n"
        f"plane.py was looked for in {workshop / 'gallery'}"
    )
    assert message_of("galery/plain.py:double") == (
        f"no file galery/plain.py; there is no folder {workshop / 'galery'}"
    )
    assert message_of("gallery/plain:double") == (
        "gallery/plain is no name of a module; did you mean gallery/plain.py?"
    )
