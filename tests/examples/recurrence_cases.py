"""State-space models and linear attention, as data."""

from __future__ import annotations

from tests.examples.case import Case

RECURRENCE: tuple[Case, ...] = ()
