"""Reductions, normalisations and losses over rows, as data."""

from __future__ import annotations

from tests.examples.case import Case

ROWWISE: tuple[Case, ...] = ()
