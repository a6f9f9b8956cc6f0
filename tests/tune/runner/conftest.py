"""A cache folder for each test, and one judge that needs no reference interpreter."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Nothing is found that another test, or the user, has compiled."""
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"
