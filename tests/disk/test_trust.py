"""Code is run from files that nobody else could have written."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tilesmith.disk import trust
from tilesmith.disk.trust import code_folder, is_ours, reason_against

NOBODY = 65_534
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser gives files away")


def make_folder(path: Path, mode: int) -> Path:
    path.mkdir(parents=True)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        (0o700, ""),
        (0o755, ""),
        (0o702, "can be written by everybody"),
        (0o777, "can be written by everybody"),
        (0o1777, "can be written by everybody"),
    ],
)
def test_a_folder_is_judged_by_who_can_write_it(tmp_path: Path, mode: int, reason: str):
    folder = make_folder(tmp_path / "cache", mode)
    assert reason_against(folder) == (reason and f"{folder} {reason}")


def test_a_folder_above_is_judged_too(tmp_path: Path):
    above = make_folder(tmp_path / "above", 0o777)
    folder = make_folder(above / "cache", 0o700)
    assert reason_against(folder) == f"{above} can be written by everybody"
    above.chmod(0o1777)  # like /tmp: others cannot rename what is not theirs
    assert reason_against(folder) == ""


def test_a_link_is_judged_by_where_it_leads(tmp_path: Path):
    target = make_folder(tmp_path / "target", 0o777)
    (tmp_path / "link").symlink_to(target)
    assert reason_against(tmp_path / "link") == f"{target} can be written by everybody"


@is_root
def test_what_belongs_to_another_is_not_trusted(tmp_path: Path):
    folder = make_folder(tmp_path / "cache", 0o700)
    os.chown(folder, NOBODY, 0)
    assert reason_against(folder).startswith(f"{folder} belongs to ")


@is_root
def test_a_group_is_trusted_only_if_it_is_the_users_own(tmp_path: Path):
    folder = make_folder(tmp_path / "cache", 0o770)
    os.chown(folder, 0, NOBODY)
    assert "can be written by the group" in reason_against(folder)
    os.chown(folder, 0, 0)
    assert reason_against(folder) == ""


def test_a_cache_is_made_for_its_owner_alone(tmp_path: Path):
    folder = tmp_path / "new" / "cache"
    assert code_folder(folder) == folder
    assert folder.stat().st_mode & 0o777 == 0o700


def test_code_goes_elsewhere_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(trust.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = make_folder(tmp_path / "cache", 0o777)
    with caplog.at_level(logging.WARNING, "tilesmith.cache"):
        found = [code_folder(folder) for _ in range(3)]
    assert set(found) == {tmp_path / f"tilesmith-{os.geteuid()}"}
    assert found[0].stat().st_mode & 0o777 == 0o700
    (message,) = [record.getMessage() for record in caplog.records]
    assert f"{folder} can be written by everybody" in message
    assert "chmod go-w" in message
    assert "TILESMITH_CACHE_DIR" in message


@pytest.mark.parametrize("trap", ["open folder", "link"])
def test_a_name_that_others_took_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
):
    monkeypatch.setattr(trust.tempfile, "gettempdir", lambda: str(tmp_path))
    taken = tmp_path / f"tilesmith-{os.geteuid()}"
    if trap == "link":
        taken.symlink_to(make_folder(tmp_path / "elsewhere", 0o700))
    else:
        make_folder(taken, 0o777)
    found = code_folder(make_folder(tmp_path / "cache", 0o777))
    assert found.parent == tmp_path
    assert found.name.startswith("tilesmith-code-")
    assert found.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("mode", "expected"), [(0o600, True), (0o644, True), (0o666, False)])
def test_a_file_is_judged_by_who_can_write_it(tmp_path: Path, mode: int, expected: bool):
    path = tmp_path / "file"
    path.write_bytes(b"x")
    path.chmod(mode)
    with path.open("rb") as file:
        assert is_ours(file.fileno()) is expected
