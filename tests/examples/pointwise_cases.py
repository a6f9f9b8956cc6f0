"""Elementwise kernels and data movement, as data."""

from __future__ import annotations

from tests.examples.case import Case

POINTWISE: tuple[Case, ...] = ()
