"""``tilesmith cache``, with the commands that exchange entries with a shared cache."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tilesmith.cli import cache
from tilesmith.cli.cache import FAILURE, FolderOption, KernelOption, cache_app, printable
from tilesmith.cli.output import show
from tilesmith.diagnostics.wording import counted
from tilesmith.settings import Settings
from tilesmith.team.exchange import Summary, diff, prune, pull, push
from tilesmith.team.shared_folder import SharedFolder, TeamCacheError

Result = TypeVar("Result")
UrlArgument = Annotated[
    str, typer.Argument(help="folder, s3://, gs://, http://; default TILESMITH_TEAM_CACHE")
]
LimitOption = Annotated[
    str, typer.Option("--limit", help="what the shared cache may hold: 512MiB, 2GiB")
]
_UNITS = {"": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def _place(url: str) -> SharedFolder:
    chosen = url or Settings().team_cache
    if not chosen:
        raise TeamCacheError("name a shared cache: a URL, or the variable TILESMITH_TEAM_CACHE")
    return SharedFolder(chosen)


def _existing_place(url: str) -> SharedFolder:
    """For commands that only read: a name with a slip in it must not look like an empty cache."""
    place = _place(url)
    if not place.exists():
        raise TeamCacheError(f"{place.url}: there is no such folder, or nothing was pushed yet")
    return place


def _attempt(action: Callable[[], Result]) -> Result:
    try:
        return action()
    except (TeamCacheError, OSError, ValueError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(FAILURE) from None


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([KMG]iB)?", text, re.IGNORECASE)
    if match is None:
        raise ValueError(f"--limit {text}: expected a size such as 512MiB")
    return int(match.group(1)) * _UNITS[(match.group(2) or "").upper()]


def _folder(cache_dir: Path | None) -> Path:
    return cache_dir or Path(Settings().cache_dir)


def _tell(summary: Summary) -> None:
    for line in summary.refused:
        typer.echo(printable(f"refused: {line}"), err=True)
    for line in summary.notes:
        typer.echo(printable(f"note: {line}"), err=True)


def push_entries(
    url: UrlArgument = "",
    kernel: KernelOption = None,
    cache_dir: FolderOption = None,
    limit: LimitOption = "1GiB",
) -> None:
    """Add winners and measurements to a shared cache. Nothing there is changed."""
    done = _attempt(lambda: push(_folder(cache_dir), _place(url), kernel, _bytes(limit)))
    _tell(done)
    typer.echo(
        f"pushed {counted(done.winners, 'winner')}, {counted(done.measurements, 'measurement')}; "
        f"{done.known} were there"
    )


def pull_entries(
    url: UrlArgument = "", kernel: KernelOption = None, cache_dir: FolderOption = None
) -> None:
    """Take over what a shared cache has. What was measured here stays."""
    done = _attempt(lambda: pull(_folder(cache_dir), _existing_place(url), kernel))
    _tell(done)
    if not (done.winners or done.measurements or done.known or done.refused):
        typer.echo("note: nothing new: is the place right, and has anybody pushed?", err=True)
    typer.echo(
        f"pulled {counted(done.winners, 'winner')}, {counted(done.measurements, 'measurement')}; "
        f"{done.known} were here, {len(done.refused)} refused"
    )


def show_difference(
    url: UrlArgument = "", kernel: KernelOption = None, cache_dir: FolderOption = None
) -> None:
    """List winners that one side lacks, or has otherwise."""
    lines, summary = _attempt(lambda: diff(_folder(cache_dir), _existing_place(url), kernel))
    _tell(summary)
    show("\n".join(map(printable, lines)) if lines else "no difference")


def prune_entries(
    url: UrlArgument = "",
    days: Annotated[float, typer.Option("--days", help="older entries go", min=0.0)] = 365.0,
    limit: LimitOption = "1GiB",
) -> None:
    """Take damaged, old and outdone entries out of a shared cache. Then the oldest over a limit."""
    removed = _attempt(lambda: prune(_existing_place(url), timedelta(days=days), _bytes(limit)))
    for entry, reason in removed:
        typer.echo(printable(f"{entry}: {reason}"), err=True)
    typer.echo(f"removed {counted(len(removed), 'object')}")


COMMANDS: dict[str, Callable[..., None]] = {
    "push": push_entries,
    "pull": pull_entries,
    "diff": show_difference,
    "prune": prune_entries,
}


def add_to(app: typer.Typer) -> None:
    """Make ``tilesmith cache`` known."""
    for name, run in COMMANDS.items():
        cache_app.command(name=name)(run)
    cache.add_to(app)
