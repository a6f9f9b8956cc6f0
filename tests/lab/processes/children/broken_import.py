"""A child that cannot be imported."""

from __future__ import annotations

raise ImportError("no such compiler")
