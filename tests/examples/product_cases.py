"""Matrix products of all kinds, as data."""

from __future__ import annotations

from tests.examples.case import Case

PRODUCT: tuple[Case, ...] = ()
