"""``tilesmith cache``: shows, clears, exports, imports."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tests.store.samples import KEY, config, other, timed
from tilesmith.cli.main import app
from tilesmith.store.journal import Journal
from tilesmith.store.winners import Winners


@pytest.fixture
def cache(tmp_path):
    folder = tmp_path / "cache"
    winners = Winners(folder)
    winners.commit(KEY, config(1), 0.0055)
    winners.commit(other(kernel="softmax"), config(2), 0.25)
    Journal(folder, KEY).append(timed(1))
    return folder


def _run(*words, folder, **options):
    command = ["cache", *map(str, words), "--cache-dir", str(folder)]
    return CliRunner().invoke(app, command, env={"COLUMNS": "200"}, **options)


def test_an_empty_cache_says_how_to_fill_it(tmp_path):
    for command in ("show", "clear"):
        result = _run(command, folder=tmp_path)
        assert result.exit_code == 0
        assert f"nothing is stored below {tmp_path}" in result.output
        assert "autotune" in result.output


def test_show_lists_winners_and_journals(cache):
    result = _run("show", folder=cache)
    assert result.exit_code == 0
    for text in ("matmul", "softmax", "0.0055", "H200", "1 journal,"):
        assert text in result.output
    one = _run("show", "--kernel", "softmax", folder=cache)
    assert "softmax" in one.output
    assert "matmul" not in one.output


def test_configs_are_lines_that_can_be_copied_whatever_the_width(cache):
    for columns in ("40", "200"):
        command = ["cache", "show", "--cache-dir", str(cache)]
        result = CliRunner().invoke(app, command, env={"COLUMNS": columns})
        assert f"  {config(1)}" in result.output.splitlines()


def test_names_from_elsewhere_do_not_command_the_terminal(tmp_path):
    Winners(tmp_path).commit(other(kernel="evil\x1b]0;title\x07"), config(1), 1.0)
    result = CliRunner().invoke(app, ["cache", "show", "--cache-dir", str(tmp_path)], color=True)
    assert result.output.startswith("evil?]0;title?(")


def test_a_wrong_variable_of_the_environment_is_a_message():
    result = CliRunner().invoke(app, ["cache", "show"], env={"TILESMITH_BACKEND": "refrence"})
    assert result.exit_code == 1
    assert "error: setting backend: 'refrence' (from the environment" in result.stderr


def test_show_as_json(cache):
    result = _run("show", "--json", "--kernel", "matmul", folder=cache)
    (entry,) = json.loads(result.output)["winners"].values()
    assert entry["config"] == config(1).config


def test_the_folder_of_the_settings_is_the_default(cache):
    result = CliRunner().invoke(app, ["cache", "show"], env={"TILESMITH_CACHE_DIR": str(cache)})
    assert "matmul" in result.output


def test_clear_asks_first(cache):
    refused = _run("clear", folder=cache, input="n\n")
    assert refused.exit_code == 1
    assert "forget 2 winners and 1 journal below" in refused.output
    assert len(Winners(cache).entries()) == 2
    assert _run("clear", folder=cache, input="y\n").exit_code == 0
    assert Winners(cache).entries() == []
    assert Journal(cache, KEY).recall() == {}


def test_clear_of_one_kernel(cache):
    result = _run("clear", "--kernel", "softmax", "--yes", folder=cache)
    assert result.exit_code == 0
    assert "forgot 1 winner and 0 journals" in result.output
    assert [winner.key.kernel for winner in Winners(cache).entries()] == ["matmul"]
    assert len(Journal(cache, KEY).recall()) == 1


def test_export_and_import(cache, tmp_path):
    file = tmp_path / "winners.json"
    assert "wrote 2 winners" in _run("export", file, folder=cache).output
    result = _run("import", file, folder=tmp_path / "new")
    assert result.exit_code == 0
    assert "2 added, 0 replaced, 0 kept" in result.output
    assert Winners(tmp_path / "new").entries() == Winners(cache).entries()


def test_what_cannot_be_imported_is_explained(tmp_path):
    file = tmp_path / "broken.json"
    file.write_text('{"schema": 1,\n "winners": nothing}')
    for name, text in ((file, "line 2"), (tmp_path / "absent.json", "No such file")):
        result = _run("import", name, folder=tmp_path)
        assert result.exit_code == 1
        assert text in result.output
        assert "Traceback" not in result.output


def test_export_into_a_place_that_is_none(cache, tmp_path):
    (tmp_path / "file").write_text("")
    result = _run("export", tmp_path / "file" / "x.json", folder=cache)
    assert result.exit_code == 1
    assert "error:" in result.output
