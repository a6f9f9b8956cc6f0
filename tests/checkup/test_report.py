"""What the report of a machine says, also of one where something is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from tilesmith.checkup import report
from tilesmith.checkup.report import examine


def test_everything_is_looked_at_and_trials_run_here():
    found = {finding.name: finding for finding in examine()}
    assert [name for name, finding in found.items() if not finding.is_good] == []
    assert f"torch {torch.__version__}" in found["versions"].text
    assert found["native code"].text.startswith("works: ")
    assert found["gpu code"].text.startswith("works: ")
    assert found["checks"].text == "works: a read past the end was noticed"
    if not torch.cuda.is_available():
        assert found["gpu kernels"].text == "not tried: torch sees no GPU"


def test_changed_settings_are_named(monkeypatch):
    monkeypatch.setenv("TILESMITH_NUM_THREADS", "3")
    found = {finding.name: finding for finding in examine(with_trials=False)}
    assert "num_threads=3" in found["settings"].text
    assert "TILESMITH_NUM_THREADS asks for 3" in found["threads"].text


def test_a_setting_that_is_none_is_a_finding(monkeypatch):
    monkeypatch.setenv("TILESMITH_NUM_THREADS", "many")
    found = {finding.name: finding for finding in examine(with_trials=False)}
    assert not found["settings"].is_good
    assert "'many'" in found["settings"].text


def test_what_breaks_is_a_line_and_the_rest_goes_on(monkeypatch):
    def fail() -> str:
        raise OSError("no such processor\nmore")

    monkeypatch.setattr(report, "cpu_name", fail)
    monkeypatch.setattr(report, "TRIALS", [report.Trial("native code", fail)])
    found = {finding.name: finding for finding in examine()}
    assert found["cpu"].text == "OSError: no such processor"
    assert not found["native code"].is_good
    assert found["gpu"].is_good


def test_a_folder_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path))

    def refuse(*args: object, **keywords: object) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(report.tempfile, "TemporaryFile", refuse)
    found = {finding.name: finding for finding in examine(with_trials=False)}
    assert not found["cache"].is_good
    assert "every process compiles anew" in found["cache"].hint


def test_the_home_folder_is_not_told():
    assert report.shortened(Path.home() / ".cache") == "~/.cache"
