"""``tilesmith cache``: shows, clears, exports and imports what tuning has left on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from filelock import Timeout
from rich.console import Console
from rich.table import Column, Table

from tilesmith.bench.summary import PIPED_WIDTH
from tilesmith.settings import Settings
from tilesmith.tune.store.journal import find_journals
from tilesmith.tune.store.winner import Winner, WinnerFileError, write_text
from tilesmith.tune.store.winners import Winners

FAILURE = 1
Result = TypeVar("Result")
KernelOption = Annotated[str | None, typer.Option("--kernel", help="only this kernel")]
FolderOption = Annotated[
    Path | None, typer.Option("--cache-dir", help="where the cache is; default as for kernels")
]

cache_app = typer.Typer(help="What tuning has left on disk.", no_args_is_help=True)


def _folder(cache_dir: Path | None) -> Path:
    return cache_dir or Path(Settings().cache_dir)


def _attempt(action: Callable[[], Result]) -> Result:
    """Run it; what goes wrong with files is a message and an exit code."""
    try:
        return action()
    except (WinnerFileError, OSError, Timeout) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(FAILURE) from None


@cache_app.command()
def show(
    kernel: KernelOption = None,
    cache_dir: FolderOption = None,
    is_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
) -> None:
    """List the winners, and how much the journals hold."""
    folder = _folder(cache_dir)
    winners = Winners(folder).entries(kernel)
    if is_json:
        typer.echo(write_text({winner.digest: winner for winner in winners}), nl=False)
        return
    journals = find_journals(folder, kernel)
    if not winners and not journals:
        _explain_empty(folder, kernel)
        return
    console = Console(soft_wrap=not winners)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    if winners:
        console.print(_table(winners))
    size = sum(path.stat().st_size for path in journals)
    console.print(f"{len(journals)} journals, {size / 1024:.0f} KiB, below {folder}")


def _explain_empty(folder: Path, kernel: str | None) -> None:
    what = f"of {kernel} " if kernel else ""
    typer.echo(f"nothing {what}is stored below {folder}")
    typer.echo("kernel.autotune(args) or `tilesmith tune module:kernel` searches and stores")


def _table(winners: list[Winner]) -> Table:
    table = Table(
        *("kernel", "arguments", "device", "ms", "found"), Column("config", overflow="fold")
    )
    for winner in winners:
        table.add_row(
            winner.key.kernel,
            winner.key.arguments,
            winner.key.device,
            f"{winner.median_ms:.4g}",
            winner.time,
            str(winner.config),
        )
    return table


@cache_app.command()
def clear(
    kernel: KernelOption = None,
    cache_dir: FolderOption = None,
    is_sure: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Forget winners and measurements."""
    folder = _folder(cache_dir)
    store = Winners(folder)
    winners, journals = store.entries(kernel), find_journals(folder, kernel)
    if not winners and not journals:
        _explain_empty(folder, kernel)
        return
    question = f"forget {len(winners)} winners and {len(journals)} journals below {folder}?"
    if not is_sure:
        typer.confirm(question, abort=True)
    _attempt(lambda: _remove(store, kernel, journals))
    typer.echo(f"forgot {len(winners)} winners and {len(journals)} journals")


def _remove(store: Winners, kernel: str | None, journals: list[Path]) -> None:
    store.clear(kernel)
    for path in journals:
        path.unlink(missing_ok=True)


@cache_app.command()
def export(
    file: Annotated[Path, typer.Argument(help="the JSON file to write", dir_okay=False)],
    kernel: KernelOption = None,
    cache_dir: FolderOption = None,
) -> None:
    """Write the winners to one file, to take elsewhere."""
    store = Winners(_folder(cache_dir))
    count = _attempt(lambda: store.export(file, kernel))
    typer.echo(f"wrote {count} winners to {file}")


@cache_app.command(name="import")
def import_winners(
    file: Annotated[Path, typer.Argument(help="a file that export wrote", dir_okay=False)],
    cache_dir: FolderOption = None,
) -> None:
    """Merge winners from a file. Of two for the same conditions the faster stays."""
    summary = _attempt(lambda: Winners(_folder(cache_dir)).import_(file))
    typer.echo(f"{summary.added} added, {summary.replaced} replaced, {summary.kept} kept")


def add_cache_commands(app: typer.Typer) -> None:
    """Make ``tilesmith cache`` known."""
    app.add_typer(cache_app, name="cache")
