"""A winner, and its form in files: plain JSON that is checked field by field, never executed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from sys import float_info
from typing import Any, cast

from tilesmith.schedule.config import Config
from tilesmith.tune.store.key import StoreKey

SCHEMA = 1
MAX_DEPTH = 8
"""Of lists within the values of a Config; the deepest there are have two."""
_NUMBERS = ("median_ms", "spread")
_TEXTS = ("note", "time")


class WinnerFileError(ValueError):
    """A file of winners that cannot be used; the text says which, where and why."""


@dataclass(frozen=True)
class Winner:
    """The Config to use under the conditions of a key."""

    key: StoreKey
    config: Config
    median_ms: float
    spread: float = 0.0
    """Distance of the 80th from the 20th percentile, as a share of the median."""
    note: str = ""
    time: str = ""
    """When it was found."""
    is_stale: bool = False
    """Whether another toolchain found it: a good guess, to be measured again."""

    @property
    def digest(self) -> str:
        """The name of the entry."""
        return self.key.digest

    def as_stale(self) -> Winner:
        """The same, as seen from another toolchain."""
        return replace(self, is_stale=True)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        rest = {name: getattr(self, name) for name in (*_NUMBERS, *_TEXTS)}
        return {"key": self.key.to_dict(), "config": self.config.config, **rest}


def _require(is_right: bool, place: str, expected: str, found: object) -> None:
    if not is_right:
        shown = repr(found) if len(repr(found)) < 60 else type(found).__name__
        raise WinnerFileError(f"{place}: expected {expected}, found {shown}")


def _object(value: Any, place: str) -> Mapping[str, Any]:
    _require(isinstance(value, dict), place, "an object", value)
    return cast("Mapping[str, Any]", value)


def _only(value: Mapping[str, Any], names: tuple[str, ...], place: str) -> None:
    unknown = [name for name in value if name not in names]
    _require(not unknown, place, f"only the fields {', '.join(names)}", "".join(unknown[:1]))
    missing = [name for name in names if name not in value]
    _require(not missing, place, f"a field {''.join(missing[:1])}", "none")


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value <= float_info.max


def _check_plain(value: Any, place: str, depth: int = 0) -> None:
    if isinstance(value, list) and depth < MAX_DEPTH:
        for position, item in enumerate(cast("list[Any]", value)):
            _check_plain(item, f"{place}[{position}]", depth + 1)
        return
    is_plain = value is None or isinstance(value, (bool, int, float, str))
    _require(is_plain, place, "a number, a string, true, false, null or a list", value)


def read_key(value: Any, place: str) -> StoreKey:
    """Check the fields of a key."""
    given = _object(value, place)
    names = tuple(field.name for field in fields(StoreKey))
    _only(given, names, place)
    versions = _object(given["toolchain"], f"{place}.toolchain")
    for name, text in {**given, **versions, "toolchain": ""}.items():
        _require(isinstance(text, str), f"{place}.{name}", "a string", text)
    return StoreKey.from_dict(given)


def read_winner(value: Any, place: str) -> Winner:
    """Check one entry; raises ``WinnerFileError`` naming the field that is wrong."""
    given = _object(value, place)
    _only(given, ("key", "config", *_NUMBERS, *_TEXTS), place)
    config = _object(given["config"], f"{place}.config")
    for name, item in config.items():
        _require(name.isidentifier(), f"{place}.config", "names of options", name)
        _check_plain(item, f"{place}.config.{name}")
    for name in _NUMBERS:
        _require(_is_number(given[name]), f"{place}.{name}", "a number >= 0", given[name])
    for name in _TEXTS:
        _require(isinstance(given[name], str), f"{place}.{name}", "a string", given[name])
    rest = {name: given[name] for name in (*_NUMBERS, *_TEXTS)}
    return Winner(read_key(given["key"], f"{place}.key"), Config.from_dict(config), **rest)


def write_text(winners: Mapping[str, Winner]) -> str:
    """A file of winners: sorted, indented, with a newline at its end."""
    entries = {digest: winner.to_dict() for digest, winner in winners.items()}
    content = {"schema": SCHEMA, "winners": entries}
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def read_text(text: str, path: str | Path) -> dict[str, Winner]:
    """Check a file of winners; raises ``WinnerFileError`` naming the line or field."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise WinnerFileError(f"{where}: not JSON: {error.msg}") from None
    except RecursionError:
        raise WinnerFileError(f"{path}: too deeply nested") from None
    except ValueError as error:  # a number of thousands of digits
        raise WinnerFileError(f"{path}: {error}") from None
    given = _object(content, str(path))
    _only(given, ("schema", "winners"), str(path))
    _require(given["schema"] == SCHEMA, f"{path}: schema", str(SCHEMA), given["schema"])
    entries = _object(given["winners"], f"{path}: winners")
    found = [
        read_winner(entry, f"{path}: winners.{digest[:12]}") for digest, entry in entries.items()
    ]
    # Digests follow from the keys, so one that was edited by hand does no harm.
    return {winner.digest: winner for winner in found}
