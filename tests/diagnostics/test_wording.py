"""Messages call objects what users call them."""

from __future__ import annotations

import functools
import math

import pytest

from tilesmith.diagnostics.wording import kind_of, with_article


class Proxy:
    user_name = "a device value"

    def __getattr__(self, name: str) -> object:
        return lambda: f"device code for {name}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (1, "an int"),
        (1.5, "a float"),
        ("s", "a str"),
        ([], "a list"),
        (int, "the class int"),
        (functools.partial(math.pow, 2), "a partial"),
        (Proxy(), "a device value"),
        (object(), "an object"),
    ],
)
def test_kinds(value, text):
    assert kind_of(value) == text


def test_articles():
    assert [with_article(noun) for noun in ("tile", "Enum", "int")] == [
        "a tile",
        "an Enum",
        "an int",
    ]
