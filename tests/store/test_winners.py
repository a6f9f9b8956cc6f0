"""Winners: found again, merged without loss, refused when a file is not what it should be."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.samples import KEY, config, other
from tilesmith.store.journal import Journal
from tilesmith.store.key import StoreKey
from tilesmith.store.winners import Winner, WinnerFileError, Winners

ROOT = Path(__file__).parents[2]


def stored(winners: Winners, key: StoreKey) -> Winner:
    """A winner that must be there."""
    winner = winners.lookup(key)
    assert winner is not None
    return winner


def test_winners_are_found_under_their_conditions_only(tmp_path):
    winners = Winners(tmp_path)
    assert winners.lookup(KEY) is None
    assert not winners.has_any("matmul")
    winners.commit(KEY, config(1), 1.5, spread=0.02, note="after 15 s")
    found = Winners(tmp_path).lookup(KEY)
    assert found is not None
    assert (found.config, found.median_ms, found.spread) == (config(1), 1.5, 0.02)
    assert (found.note, found.is_stale) == ("after 15 s", False)
    assert winners.has_any("matmul")
    for change in ({"device": "H100"}, {"arguments": "x"}, {"source": "0"}, {"regime": "warm"}):
        assert winners.lookup(other(**change)) is None


def test_a_winner_of_another_toolchain_is_stale(tmp_path):
    winners = Winners(tmp_path)
    winners.commit(KEY, config(1), 1.5)
    newer = other(toolchain=(("tilesmith", "0.2.0"),), program="other IR", facts="other facts")
    found = winners.lookup(newer)
    assert found is not None
    assert found.config == config(1)
    assert found.is_stale
    winners.commit(newer, config(2), 1.2)
    assert stored(winners, newer).config == config(2)
    assert not stored(winners, KEY).is_stale


def test_the_last_search_decides(tmp_path):
    winners = Winners(tmp_path)
    winners.commit(KEY, config(1), 1.0)
    winners.commit(KEY, config(2), 2.0)
    assert stored(winners, KEY).config == config(2)
    assert len(winners.entries()) == 1


def test_files_are_for_people(tmp_path):
    winners = Winners(tmp_path)
    winners.commit(KEY, config(1), 1.5)
    text = winners.path("matmul").read_text()
    content = json.loads(text)
    assert text == json.dumps(content, indent=2, sort_keys=True) + "\n"
    (entry,) = content["winners"].values()
    assert entry["config"]["num_warps"] == 4
    assert entry["key"]["arguments"] == KEY.arguments


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    count, names = 15, ("a", "b")
    command = [sys.executable, "-m", "tests.store.writer", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    writers = [
        subprocess.Popen(
            [*command, name, str(count)], stdin=subprocess.PIPE, cwd=ROOT, env=environment
        )
        for name in names
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
        writer.stdin.close()
    assert [writer.wait(120) for writer in writers] == [0, 0]
    found = {winner.key.arguments for winner in Winners(tmp_path).entries()}
    assert found == {f"{name} {number}" for name in names for number in range(count)}
    journal = Journal(tmp_path, KEY)
    assert len(journal.recall()) == count * len(names)
    assert journal.num_skipped == 0


def test_a_damaged_file_is_put_aside(tmp_path, caplog):
    winners = Winners(tmp_path)
    winners.commit(KEY, config(1), 1.5)
    path = winners.path("matmul")
    path.write_text('{"schema": 1, "winners": {')
    again = Winners(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert again.lookup(KEY) is None
        again.commit(KEY, config(2), 1.0)
    assert len(caplog.records) == 1
    assert "line 1" in caplog.text
    assert stored(again, KEY).config == config(2)
    assert path.with_suffix(".damaged").exists()


def test_a_disk_that_cannot_be_written_costs_one_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    winners = Winners(tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        winners.commit(KEY, config(1), 1.5)
        winners.commit(other(arguments="x"), config(2), 1.5)
    assert len(caplog.records) == 1
    assert stored(winners, KEY).config == config(1)


def test_clear_forgets_what_it_is_told_to(tmp_path):
    winners = Winners(tmp_path)
    winners.commit(KEY, config(1), 1.5)
    winners.commit(other(arguments="x"), config(1), 1.5)
    winners.commit(other(kernel="softmax"), config(2), 1.5)
    assert winners.clear("matmul") == 2
    assert [winner.key.kernel for winner in winners.entries()] == ["softmax"]
    assert winners.clear("matmul") == 0
    assert winners.clear() == 1
    assert winners.entries() == []


def test_export_and_import_carry_everything_over(tmp_path):
    here, there = Winners(tmp_path / "here"), Winners(tmp_path / "there")
    here.commit(KEY, config(1), 1.5, note="from here")
    here.commit(other(kernel="softmax"), config(2), 0.5)
    assert here.export(tmp_path / "file.json") == 2
    summary = there.import_(tmp_path / "file.json")
    assert (summary.added, summary.replaced, summary.kept) == (2, 0, 0)
    assert there.entries() == here.entries()
    assert there.import_(tmp_path / "file.json").kept == 2


def test_import_keeps_the_faster(tmp_path):
    here, there = Winners(tmp_path / "here"), Winners(tmp_path / "there")
    slow, fast = other(arguments="slow"), other(arguments="fast")
    for key, ms in ((slow, 2.0), (fast, 1.0)):
        here.commit(key, config(1), ms)
        there.commit(key, config(2), 1.5)
    here.export(tmp_path / "file.json")
    summary = there.import_(tmp_path / "file.json")
    assert (summary.added, summary.replaced, summary.kept) == (0, 1, 1)
    assert stored(there, fast).config == config(1)
    assert stored(there, slow).config == config(2)


def _exported(tmp_path):
    winners = Winners(tmp_path / "here")
    winners.commit(KEY, config(1), 1.5)
    winners.export(tmp_path / "file.json")
    return json.loads((tmp_path / "file.json").read_text())


def _entry(content):
    return next(iter(content["winners"].values()))


MISTAKES = {
    "schema": (lambda c: c.update(schema=2), "schema: expected 1, found 2"),
    "fields": (lambda c: c.update(code="import os"), "only the fields schema, winners"),
    "winners": (lambda c: c.update(winners=[]), "winners: expected an object"),
    "time": (lambda c: _entry(c).update(median_ms="fast"), "median_ms: expected a number"),
    "bool": (lambda c: _entry(c).update(spread=True), "spread: expected a number"),
    "negative": (lambda c: _entry(c).update(median_ms=-1.0), "median_ms: expected a number >= 0"),
    "huge": (lambda c: _entry(c).update(spread=10**400), "spread: expected a number >= 0"),
    "deep": (lambda c: _entry(c)["config"].update(a=json.loads("[" * 300 + "]" * 300)), "found"),
    "config": (lambda c: _entry(c)["config"].update(a={"b": 1}), "config.a: expected a number"),
    "name": (lambda c: _entry(c)["config"].update({"a b": 1}), "config: expected names"),
    "nested": (lambda c: _entry(c)["config"].update(a=[1, [{}]]), r"config\.a\[1\]\[0\]"),
    "key": (lambda c: _entry(c)["key"].pop("device"), "key: expected a field device"),
    "type": (lambda c: _entry(c)["key"].update(device=3), "key.device: expected a string"),
    "versions": (lambda c: _entry(c)["key"].update(toolchain=[]), "toolchain: expected an object"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_import_names_the_field_that_is_wrong(tmp_path, name):
    spoil, message = MISTAKES[name]
    content = _exported(tmp_path)
    spoil(content)
    (tmp_path / "file.json").write_text(json.dumps(content))
    winners = Winners(tmp_path / "there")
    with pytest.raises(WinnerFileError, match=message) as raised:
        winners.import_(tmp_path / "file.json")
    assert "file.json" in str(raised.value)
    assert winners.entries() == []


def test_import_names_the_line_that_is_no_json(tmp_path):
    path = tmp_path / "file.json"
    path.write_text('{\n  "schema": 1,\n  "winners": {,}\n}')
    with pytest.raises(WinnerFileError, match="line 3, column 15"):
        Winners(tmp_path).import_(path)
    path.write_bytes(b"\x80\x04\x95pickle")
    with pytest.raises(WinnerFileError, match="not UTF-8"):
        Winners(tmp_path).import_(path)
    for text in ("[" * 100_000, "1" * 5_000):
        path.write_text(text)
        with pytest.raises(WinnerFileError):
            Winners(tmp_path).import_(path)


def test_texts_that_are_no_unicode_are_only_texts(tmp_path):
    content = _exported(tmp_path)
    _entry(content)["key"]["arguments"] = "\ud800"
    (tmp_path / "file.json").write_text(json.dumps(content))
    assert Winners(tmp_path / "here").import_(tmp_path / "file.json").added == 1
    assert len(Winners(tmp_path / "here").entries()) == 2


def test_files_are_as_open_as_the_user_s_other_files(tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    _exported(tmp_path)
    files = [tmp_path / "file.json", Winners(tmp_path / "here").path("matmul")]
    assert {path.stat().st_mode for path in files} == {plain.stat().st_mode}


def test_of_several_old_winners_the_latest_counts(tmp_path, monkeypatch):
    winners = Winners(tmp_path)
    for version, day in (("0.1.8", "01"), ("0.2.0", "03"), ("0.1.9", "02")):
        monkeypatch.setattr("tilesmith.store.winners.now_text", lambda day=day: f"2026-01-{day}")
        winners.commit(other(toolchain=(("tilesmith", version),)), config(int(day)), 1.5)
    assert stored(winners, other(toolchain=(("tilesmith", "0.3.0"),))).config == config(3)


def test_winners_that_cannot_be_read_for_a_while_are_not_replaced(tmp_path, monkeypatch, caplog):
    Winners(tmp_path).commit(KEY, config(1), 1.5)
    path = Winners(tmp_path).path(KEY.kernel)
    content = path.read_bytes()

    def fail(self, *args, **keywords):
        raise OSError(errno.EIO, "Input/output error")

    winners = Winners(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", fail)
        winners.commit(other(arguments="x"), config(2), 2.5)
    assert path.read_bytes() == content
    assert "kept in memory only" in caplog.text
    assert stored(winners, other(arguments="x")).config == config(2)
    assert stored(winners, KEY).config == config(1)


def test_what_killed_writers_left_goes_with_the_next_winner(tmp_path):
    winners = Winners(tmp_path)
    winners.commit(KEY, config(1), 1.5)
    (winners.folder / f".{winners.path(KEY.kernel).name}.123-0123abcd").write_text("half of it")
    winners.commit(KEY, config(2), 1.0)
    names = {path.name for path in winners.folder.iterdir()}
    assert names == {winners.path(KEY.kernel).name, ".lock"}
