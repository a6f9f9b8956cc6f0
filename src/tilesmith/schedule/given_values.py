"""The keys and values of a Config from what a user gives: a mapping, a text, a file.

What is no Config is refused with what was found and what would be one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from textwrap import fill
from typing import Any, cast

from tilesmith.diagnostics.file_problems import file_problem, json_problem
from tilesmith.diagnostics.wording import kind_of
from tilesmith.exc import InvalidConfig, InvalidConfigKeys

EXAMPLE = '{"block_sizes": [64], "num_warps": 4}'
WIDTH = 90


def values_of(given: object) -> dict[str, Any]:
    """Of a mapping; anything else is none."""
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, Any]", given))
    module = type(given).__module__.partition(".")[0]
    kind = (
        kind_of(given) if module in ("builtins", "tilesmith") else f"{kind_of(given)} of {module}"
    )
    raise InvalidConfig(
        problem=f"{kind} is no Config",
        expected="tilesmith.Config(block_sizes=[64], num_warps=4), or a dict of such keys",
    )


def values_of_text(text: str) -> dict[str, Any]:
    """Of a JSON object."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{json_problem(error)}; expected such as {EXAMPLE}") from None
    if not isinstance(found, dict):
        kind = type(found).__name__
        raise ValueError(f"a Config is a JSON object, found {kind}; expected such as {EXAMPLE}")
    return cast("dict[str, Any]", found)


def values_of_file(path: str | Path) -> dict[str, Any]:
    """Of a file that holds a JSON object; one that cannot be opened is an OSError."""
    try:
        return values_of_text(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"no Config in {file_problem(error, path)}") from None


def unknown_keys(
    unknown: list[str], known: Iterable[str], other_spellings: Iterable[str]
) -> InvalidConfigKeys:
    """The error for keys that nobody knows: those like them, or all that there are."""
    names = sorted(known)
    spelled = [*names, *other_spellings]
    near = [match for name in unknown for match in get_close_matches(name.lower(), spelled, n=1)]
    if near:
        return InvalidConfigKeys(keys=unknown, suggestions=" or ".join(dict.fromkeys(near)))
    listed = fill(f"one of {', '.join(names)}", WIDTH)
    return InvalidConfigKeys(
        keys=unknown, expected=listed, fix="register a tunable of your own: hl.register_tunable"
    )
