"""Kernels keep their signatures, and type checkers know every keyword.

The two files of uses are read by pyright whenever types are checked (``make types``): it finds
nothing in the right ones, and each comment in the wrong ones must have something to silence.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tilesmith import keywords
from tilesmith.jit import typed
from tilesmith.jit.staging.configs import STAGES
from tilesmith.schedule.config import KEYS_BY_NAME, PLURALS, PORTABLE_KEYS, STRUCTURE
from tilesmith.settings import Settings
from tilesmith.tune.options import METHOD_KEYWORDS, PREFIX
from tilesmith.tune.search.methods import METHODS

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
RIGHT, WRONG = FOLDER / "right_uses.py", FOLDER / "wrong_uses.py"
MARK = "# pyright: ignore["


def hints(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind, vars(typed) | vars(keywords))


SETTINGS = {item.name for item in fields(Settings)}


def test_every_setting_is_a_keyword():
    assert set(hints(keywords.SettingKeywords)) == SETTINGS
    assert set(hints(typed.KernelKeywords)) == SETTINGS | {
        "config", "configs", "key", "settings",
    }  # fmt: skip


def test_searches_take_settings_and_options_of_methods():
    options = {o for method in METHODS.values() for o in (*method.options, *method.ignored)}
    short = {name.removeprefix(PREFIX) for name in SETTINGS if name.startswith(PREFIX)}
    expected = SETTINGS | short | options | set(METHOD_KEYWORDS)
    assert set(hints(keywords.SearchKeywords)) == expected


def test_every_key_of_a_config_is_a_keyword():
    known = {*KEYS_BY_NAME, *PLURALS, *PORTABLE_KEYS, STRUCTURE, STAGES}
    assert set(hints(keywords.ConfigKeywords)) == known


def test_defaults_have_the_types_that_keywords_name():
    """The types are written by hand: at least what nobody has set must fit."""
    plain = Settings.from_environment({}, environ={})
    for name, hint in hints(keywords.SettingKeywords).items():
        value = getattr(plain, name)
        text = str(hint)
        assert "Any" in text or type(value).__name__ in text or _is_listed(value, text), name


def _is_listed(value: object, hint: str) -> bool:
    is_sequence = isinstance(value, tuple) and "Sequence" in hint
    is_mapping = isinstance(value, dict) and "Mapping" in hint
    return is_sequence or is_mapping or repr(value) in hint or "object" in hint


def test_the_package_says_that_it_is_typed():
    assert (Path(tilesmith.__file__).parent / "py.typed").exists()


def test_decorators_and_kernels_have_docs():
    @tilesmith.kernel
    def documented(x: torch.Tensor) -> torch.Tensor:
        """Doubles."""
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * 2
        return out

    assert documented.__doc__ == "Doubles."
    for decorator in (tilesmith.kernel, tilesmith.jit, tilesmith.aot_kernel):
        assert decorator.__doc__ is not None
        assert "kernel" in decorator.__doc__


def test_pyright_looks_at_both_files():
    """Without the first line it would not look for comments that silence nothing."""
    for path in (RIGHT, WRONG):
        first, *_ = path.read_text().splitlines()
        assert first == "# pyright: strict, reportUnnecessaryTypeIgnoreComment=error"
    assert MARK not in RIGHT.read_text()
    assert WRONG.read_text().count(MARK) > 35


@pytest.mark.full
def test_mypy_finds_what_pyright_finds(tmp_path: Path):
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    command += ["--explicit-package-bases", "--cache-dir", str(tmp_path), str(RIGHT), str(WRONG)]
    environment = {"MYPYPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    found = {
        (Path(match[1]).name, int(match[2]))
        for match in re.finditer(r"^([^:\n]+):(\d+): error", done.stdout, re.MULTILINE)
    }
    lines = enumerate(WRONG.read_text().splitlines(), start=1)
    marked = {(WRONG.name, number) for number, line in lines if MARK in line}
    assert found == marked, done.stdout + done.stderr
