"""What a saved module takes from the user's module: import lines, and constants written out."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

_AVAILABLE = frozenset({"torch", "triton", "tl"})
_IN_MODULE = re.compile(r"__constants__\[(\d+)\]\['(\w+)'\]")
_NAMELESS = re.compile(r"__constants__\[(\d+)\]")


def lines_for_names(module: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Import lines or assignments for names that host code reads from the user's module."""
    found = [name for name in names if name in module and name not in _AVAILABLE]
    return sorted(_line_for(module, name) for name in found)


def _line_for(module: dict[str, Any], name: str) -> str:
    value = module[name]
    if isinstance(value, ModuleType):
        return f"import {value.__name__}" + (f" as {name}" if value.__name__ != name else "")
    text = literal(value)
    return _import_line(module, name) if text is None else f"{name} = {text}"


def _import_line(module: dict[str, Any], name: str) -> str:
    return f"from {module.get('__name__', '__main__')} import {name}"


def literal(value: Any) -> str | None:
    """Source text that gives a constant; None if there is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    if repr(value).startswith("torch.") and type(value).__module__ == "torch":
        return repr(value)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        items = [literal(item) for item in value]
        inside = ", ".join(item for item in items if item is not None)
        closing = "," if isinstance(value, tuple) and len(items) == 1 else ""
        brackets = "[]" if isinstance(value, list) else "()"
        return None if None in items else f"{brackets[0]}{inside}{closing}{brackets[1]}"
    return None


def replace_constants(sources: Sequence[str], constants: Sequence[Any]) -> tuple[str, list[str]]:
    """Launch arguments as source text, and the lines that their names need.

    Tensors that helpers read from their own modules are imported from there.
    """
    lines: list[str] = []

    def named(match: re.Match[str]) -> str:
        lines.append(_import_line(constants[int(match.group(1))], match.group(2)))
        return match.group(2)

    def nameless(match: re.Match[str]) -> str:
        name = f"captured_{match.group(1)}"
        lines.append(f"{name} = None  # set it to the tensor that device code reached")
        return name

    texts = [_NAMELESS.sub(nameless, _IN_MODULE.sub(named, source)) for source in sources]
    return ", ".join(texts), list(dict.fromkeys(lines))
