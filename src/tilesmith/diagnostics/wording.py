"""Objects and numbers in the words of a message: what a user would call them."""

from __future__ import annotations

from math import inf
from typing import Any


def kind_of(value: object) -> str:
    """What an object is, with its article: its class's ``user_name`` if it has one, else its type.

    Example:
        >>> kind_of(1.5), kind_of([]), kind_of(None), kind_of(int)
        ('a float', 'a list', 'None', 'the class int')
    """
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = getattr(type(value), "user_name", None)
    return name if isinstance(name, str) else with_article(type(value).__name__)


def with_article(noun: str) -> str:
    """A noun with "a" or "an".

    Example:
        >>> with_article("int")
        'an int'
    """
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def number_text(value: float) -> str:
    """Four significant digits, never an exponent for a large value.

    Example:
        >>> number_text(0.0055), number_text(0.012346), number_text(123456.7), number_text(inf)
        ('0.0055', '0.01235', '123457', '-')
    """
    if value == inf:
        return "-"
    return f"{value:.4g}" if value < 999.95 else f"{value:.0f}"


def ms_text(value: float) -> str:
    """A time with its unit."""
    return f"{number_text(value)} ms"


def percent_text(share: float) -> str:
    """A share as percent: one digit after the point below ten.

    Example:
        >>> percent_text(0.0041), percent_text(0.958)
        ('0.4%', '96%')
    """
    percent = 100 * share
    return f"{percent:.1f}%" if percent < 9.95 else f"{percent:.0f}%"


def noise_text(share: float) -> str:
    """How far times are apart, as a share of themselves; beyond their size a figure says nothing.

    Example:
        >>> noise_text(0.021), noise_text(189.14)
        ('2.1%', 'more than 100%')
    """
    return percent_text(share) if share <= 1.0 else "more than 100%"


def counted(count: int, noun: str) -> str:
    """The count with its noun.

    Example:
        >>> counted(1, "config"), counted(40, "config")
        ('1 config', '40 configs')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def first_line(text: str, limit: int = 160) -> str:
    """The first line that is not empty, cut where it gets long."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = lines[0] if lines else ""
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


_CONVERSIONS = (
    ("__dlpack__", "torch.from_dlpack"),
    ("__cuda_array_interface__", "torch.as_tensor"),
    ("__array_interface__", "torch.as_tensor"),
)
"""Attributes by which a foreign array is known, and what makes a tensor of it."""


def conversion_of(value: object, name: str) -> dict[str, Any]:
    """How to make a tensor of an array of another library, as part of an error; else nothing."""
    module = type(value).__module__
    function = next((call for mark, call in _CONVERSIONS if hasattr(value, mark)), "")
    if module == "numpy" and type(value).__name__ == "ndarray":
        function = "torch.from_numpy"
    elif type(value).__name__ == "PyCapsule" and "dltensor" in repr(value):
        function = "torch.from_dlpack"
    return {"fix": f"pass `{function}({name})`, which shares its memory"} if function else {}
