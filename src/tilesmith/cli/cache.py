"""``tilesmith cache``: shows, clears, exports and imports what tuning has left on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tilesmith.cli.output import show as show_text
from tilesmith.diagnostics.wording import counted
from tilesmith.settings import SettingError, Settings
from tilesmith.store.journal import find_journals
from tilesmith.store.winners import Winner, WinnerFileError, Winners, write_text

FAILURE = 1
Result = TypeVar("Result")
KernelOption = Annotated[str | None, typer.Option("--kernel", help="only this kernel")]
FolderOption = Annotated[
    Path | None, typer.Option("--cache-dir", help="where the cache is; default as for kernels")
]

cache_app = typer.Typer(help="What tuning has left on disk.", no_args_is_help=True)


def _folder(cache_dir: Path | None) -> Path:
    return cache_dir or _attempt(lambda: Path(Settings().cache_dir))


def _attempt(action: Callable[[], Result], file: Path | None = None) -> Result:
    """Run it; what goes wrong with files is a message and an exit code."""
    try:
        return action()
    except OSError as error:
        place = error.filename or file
        typer.echo(f"error: {f'{place}: ' if place else ''}{error.strerror or error}", err=True)
        raise typer.Exit(FAILURE) from None
    except (WinnerFileError, SettingError) as error:
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
        show_text(write_text({winner.digest: winner for winner in winners}).rstrip())
        return
    journals = find_journals(folder, kernel)
    if not winners and not journals:
        _explain_empty(folder, kernel)
        return
    size = sum(path.stat().st_size for path in journals)
    total = f"{counted(len(journals), 'journal')}, {size / 1024:.0f} KiB, below {folder}"
    lines = map(printable, chain.from_iterable(map(winner_lines, winners)))
    show_text("\n".join([*lines, total]))


def printable(line: str) -> str:
    """The same without what a terminal would obey: files may come from anywhere."""
    return "".join(c if c.isprintable() else "?" for c in line)


def _explain_empty(folder: Path, kernel: str | None) -> None:
    what = f"of {kernel} " if kernel else ""
    typer.echo(f"nothing {what}is stored below {folder}")
    typer.echo("kernel.autotune(args) or `tilesmith tune module:kernel` searches and stores")


def winner_lines(winner: Winner) -> Iterator[str]:
    """A winner without a table: in a terminal of any width its config can be copied."""
    yield f"{winner.key.kernel}({winner.key.arguments})"
    yield f"  {winner.median_ms:.4g} ms on {winner.key.device}, found {winner.time}"
    yield f"  {winner.config}"


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
    what = f"{counted(len(winners), 'winner')} and {counted(len(journals), 'journal')}"
    if not is_sure:
        typer.confirm(f"forget {what} below {folder}?", abort=True)
    _attempt(lambda: store.clear(kernel))
    for path in journals:
        _attempt(partial(path.unlink, missing_ok=True))
    typer.echo(f"forgot {what}")


@cache_app.command()
def export(
    file: Annotated[Path, typer.Argument(help="the JSON file to write", dir_okay=False)],
    kernel: KernelOption = None,
    cache_dir: FolderOption = None,
) -> None:
    """Write the winners to one file, to take elsewhere."""
    store = Winners(_folder(cache_dir))
    count = _attempt(lambda: store.export(file, kernel), file)
    typer.echo(f"wrote {counted(count, 'winner')} to {file}")


def import_winners(
    file: Annotated[Path, typer.Argument(help="a file that export wrote", dir_okay=False)],
    cache_dir: FolderOption = None,
) -> None:
    """Merge winners from a file. Of two for the same conditions the faster stays."""
    summary = _attempt(lambda: Winners(_folder(cache_dir)).import_(file))
    typer.echo(f"{summary.added} added, {summary.replaced} replaced, {summary.kept} kept")


def add_to(app: typer.Typer) -> None:
    """Make ``tilesmith cache`` known."""
    cache_app.command(name="import")(import_winners)
    app.add_typer(cache_app, name="cache")
