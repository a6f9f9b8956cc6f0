"""Attention and its variants, as data."""

from __future__ import annotations

from tests.examples.case import Case

ATTENTION: tuple[Case, ...] = ()
