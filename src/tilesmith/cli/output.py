"""Output that nobody takes any more, because of a closed pipe or a full disk, is no traceback."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

import typer
from rich.console import Console

UNPRINTED = 3
"""Exit code of a command whose results could not be printed."""


class UsageError(Exception):
    """Options that do not go together, or name what is not there."""


def require_folder(path: Path) -> None:
    """Refuse to write where no file can be, before anything is worked out in vain."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        reason = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise UsageError(f"{path} cannot be written: {reason}")


def make_folder(folder: Path) -> None:
    """Have a folder that files can be written to; UsageError before anything is worked out."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{folder} cannot be written to: {error.strerror}") from None


class SideConsole(Console):
    """Standard error: when its reader goes, nothing more is printed there, and all else goes on."""

    def __init__(self) -> None:
        super().__init__(stderr=True)

    def on_broken_pipe(self) -> None:
        """Unlike rich, which ends the program and takes standard output away too."""
        self.quiet = True


def tell(text: str) -> None:
    """A line on standard error, for whoever still reads it."""
    with suppress(OSError):
        typer.echo(text, err=True)


def show(text: str) -> None:
    """A result on standard output; the command ends if that does not take it."""
    if not is_shown(lambda: typer.echo(text)):
        raise typer.Exit(UNPRINTED)


def is_shown(show: Callable[[], object]) -> bool:
    """Print results by a function; False, and a message, if standard output does not take them.

    A reader that has seen enough and closed its pipe ends the command, as is usual.
    """
    try:
        show()
    except BrokenPipeError:
        raise
    except OSError as error:
        tell(f"error: standard output cannot be written: {error.strerror}")
        return False
    return True
