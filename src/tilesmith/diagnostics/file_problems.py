"""What is wrong with a file or a text that the user names, in a line or two.

Exceptions of Python about files, encodings, JSON and syntax go in; a text without numbers of
errors and without frames of ours comes out.
"""

from __future__ import annotations

import json
from pathlib import Path

FILE_ERRORS = (OSError, UnicodeDecodeError, SyntaxError, json.JSONDecodeError)


def file_problem(error: Exception, path: str | Path = "") -> str:
    """The problem with a file, after its name.

    Example:
        >>> file_problem(FileNotFoundError(2, "No such file or directory", "best.json"))
        'best.json: No such file or directory'
    """
    name = str(path or getattr(error, "filename", None) or "")
    if isinstance(error, SyntaxError):
        return _syntax_problem(error, name)
    problem = str(error)
    if isinstance(error, OSError):
        problem = error.strerror or str(error)
    elif isinstance(error, UnicodeDecodeError):
        line = error.object[: error.start].count(b"\n") + 1
        problem = f"line {line} is not UTF-8: byte 0x{error.object[error.start]:02x}"
    elif isinstance(error, json.JSONDecodeError):
        problem = json_problem(error)
    return f"{name}: {problem}" if name else problem


def json_problem(error: json.JSONDecodeError) -> str:
    """What is wrong with a text that should be JSON.

    Example:
        >>> try:
        ...     json.loads("{'a': 1}")
        ... except json.JSONDecodeError as error:
        ...     print(json_problem(error))
        not JSON: line 1, column 2: Expecting property name enclosed in double quotes
    """
    return f"not JSON: line {error.lineno}, column {error.colno}: {error.msg}"


def _encoding_problem(name: str) -> str:
    try:
        Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return file_problem(error, name)
    return f"{name}: not in the encoding that its first lines name"


def _syntax_problem(error: SyntaxError, name: str) -> str:
    if "codec can't decode" in str(error.msg) and Path(name).is_file():
        return _encoding_problem(name)
    place = f"{name}:{error.lineno}" if error.lineno else name
    head = f"{place}: {type(error).__name__}: {error.msg}" if place else f"{error.msg}"
    if not error.text or not error.text.strip():
        return head
    line = error.text.rstrip("\n").expandtabs(4)
    return f"{head}\n  {line}\n  {' ' * max((error.offset or 1) - 1, 0)}^"
