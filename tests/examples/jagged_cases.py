"""Kernels over ragged rows, groups and experts, as data."""

from __future__ import annotations

from tests.examples.case import Case

JAGGED: tuple[Case, ...] = ()
