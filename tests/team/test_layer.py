"""The shared cache under the local one: a first call takes what a colleague has found."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.cli.kernel_reference import find_kernel
from tilesmith.cli.main import app
from tilesmith.store.lookup import make_key, winner_key
from tilesmith.store.winners import Winners
from tilesmith.team.exchange import push
from tilesmith.team.layer import _warn_once, refresh
from tilesmith.team.shared_folder import SharedFolder

X = torch.ones(96)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    refresh.cache_clear()
    _warn_once.cache_clear()
    yield
    refresh.cache_clear()
    _warn_once.cache_clear()


def raised(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + 1
    return out


def test_a_first_call_takes_what_a_colleague_pushed(tmp_path: Path) -> None:
    url = str(tmp_path / "shared")
    kernel = helion.kernel(raised, cache_dir=str(tmp_path / "theirs"))
    key = winner_key(make_key(kernel.bind((X,)), (X,)), (), {}, False)
    config = helion.Config(block_sizes=[16])
    Winners(tmp_path / "theirs").commit(key, config, 0.5)
    push(tmp_path / "theirs", SharedFolder(url), None)
    ours = helion.kernel(raised, cache_dir=str(tmp_path / "ours"), team_cache=url)
    torch.testing.assert_close(ours(X), X + 1, rtol=0, atol=0)
    active = ours.bind((X,))._active
    assert active is not None
    assert active.config["block_sizes"] == [16]
    (found,) = Winners(tmp_path / "ours").entries()
    assert found.note.endswith(f"; from {url}")


def test_a_place_that_cannot_be_reached_costs_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = "gopher://nowhere"
    ours = helion.kernel(raised, cache_dir=str(tmp_path / "ours"), team_cache=url)
    with caplog.at_level(logging.WARNING, "tilesmith.autotune"):
        torch.testing.assert_close(ours(X), X + 1, rtol=0, atol=0)
        torch.testing.assert_close(ours(X[:50]), X[:50] + 1, rtol=0, atol=0)
    lines = [record.getMessage() for record in caplog.records if "team" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith(
        f"the team's cache {url} is left out: {url!r} is no place for a cache"
    )


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, run = str(tmp_path / "shared"), CliRunner().invoke
    kernel = helion.kernel(raised, cache_dir=str(tmp_path / "theirs"))
    key = make_key(kernel.bind((X,)), (X,))
    Winners(tmp_path / "theirs").commit(key, helion.Config(block_sizes=[16]), 0.5)
    theirs, ours = (["--cache-dir", str(tmp_path / name)] for name in ("theirs", "ours"))
    ended = run(app, ["cache", "push", url, *theirs])
    assert (ended.exit_code, ended.stdout) == (0, "pushed 1 winner, 0 measurements; 0 were there\n")
    monkeypatch.setenv("TILESMITH_TEAM_CACHE", url)
    ended = run(app, ["cache", "diff", *ours])
    assert ended.stdout == f"there raised(x: float32[96]) on {key.device}: 0.5 ms\n"
    ended = run(app, ["cache", "pull", *ours])
    assert ended.stdout == "pulled 1 winner, 0 measurements; 0 were here, 0 refused\n"
    assert run(app, ["cache", "diff", *ours]).stdout == "no difference\n"
    assert "from " in run(app, ["cache", "show", "--json", *ours]).stdout
    assert run(app, ["cache", "prune", "--limit", "0"]).stdout == "removed 1 object\n"
    ended = run(app, ["cache", "push", "--limit", "much", *theirs])
    assert ended.exit_code == 1
    assert ended.stderr == "error: --limit much: expected a size such as 512MiB\n"
    monkeypatch.delenv("TILESMITH_TEAM_CACHE")
    ended = run(app, ["cache", "push", *theirs])
    assert ended.stderr == (
        "error: name a shared cache: a URL, or the variable TILESMITH_TEAM_CACHE\n"
    )


@pytest.mark.parametrize("command", ["pull", "diff", "prune"])
def test_a_folder_that_is_not_there_is_no_empty_cache(tmp_path: Path, command: str) -> None:
    url = str(tmp_path / "sharde")
    ours = [] if command == "prune" else ["--cache-dir", str(tmp_path / "ours")]
    ended = CliRunner().invoke(app, ["cache", command, url, *ours])
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr == f"error: {url}: there is no such folder, or nothing was pushed yet\n"
    (tmp_path / "sharde").mkdir()
    assert CliRunner().invoke(app, ["cache", command, url, *ours]).exit_code == 0


def test_explain_says_where_a_config_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "shared")
    file = tmp_path / "raising.py"
    lines = ["import torch", "import tilesmith as helion", "import tilesmith.language as hl"]
    body = Path(__file__).read_text().partition("def raised")[2].partition("\n\n\n")[0]
    file.write_text("\n".join([*lines, "@helion.kernel", f"def raised{body}", ""]))
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "theirs"))
    arguments = ["--args", "ones(96)", "--device", "cpu"]
    command = ["explain", f"{file}:raised", *arguments, "--count", "1"]
    assert "stored" not in CliRunner().invoke(app, command).stdout
    kernel = find_kernel(f"{file}:raised")
    key = winner_key(make_key(kernel.bind((X,)), (X,)), (), {}, False)
    Winners(tmp_path / "theirs").commit(key, helion.Config(block_sizes=[16]), 0.5, note="7 configs")
    push(tmp_path / "theirs", SharedFolder(url), None)
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "ours"))
    monkeypatch.setenv("TILESMITH_TEAM_CACHE", url)
    again = file.with_name("raising_again.py")  # loaded anew, with these settings
    again.write_text(file.read_text())
    command[1] = f"{again}:raised"
    shown = CliRunner().invoke(app, command).stdout.splitlines()
    (found,) = [line for line in shown if line.startswith("found ")]
    assert found.partition(", ")[2] == f"0.5 ms; 7 configs; from {url}; used"
