"""The journal: nothing is lost that was written, nothing damaged does damage."""

from __future__ import annotations

import errno
import json
import logging
import os
from dataclasses import replace

import pytest

from tests.store.samples import KEY, config, failed, other, timed
from tilesmith.schedule.config import Config
from tilesmith.store.journal import Journal, find_journals, from_line, safe_name, to_line
from tilesmith.store.outcome import Verdict


def test_a_line_says_all_there_is_to_know():
    line = json.loads(to_line(KEY, timed(3)))
    assert line["schema"] == 1
    assert line["config"] == config(3).config
    assert (line["verdict"], line["median_ms"], line["samples"]) == ("ok", 1.5, 3)
    assert line["resources"] == {"shared_bytes": 49152, "registers": 128, "spills": 0}
    assert line["toolchain"] == {"tilesmith": "0.1.0", "triton": "3.6.0"}
    assert (line["device"], line["predicted_ms"], line["key"]) == ("H200", 1.25, KEY.digest)


@pytest.mark.parametrize("outcome", [timed(1), failed(2), failed(3, Verdict.NONDETERMINISTIC)])
def test_measurements_come_back(tmp_path, outcome):
    Journal(tmp_path, KEY).append(outcome)
    found = Journal(tmp_path, KEY).recall()[outcome.config]
    expected = replace(
        outcome,
        candidate=replace(outcome.candidate, origin="journal"),
        samples_ms=(),
        is_recalled=True,
    )
    assert found == expected


def test_only_the_same_conditions_are_recalled(tmp_path):
    Journal(tmp_path, KEY).append(timed(1))
    for change in ({"program": "8"}, {"device": "H100"}, {"toolchain": ()}, {"arguments": "x"}):
        assert Journal(tmp_path, other(**change)).recall() == {}


def test_the_latest_measurement_counts(tmp_path):
    journal = Journal(tmp_path, KEY)
    for ms in (3.0, 1.0, 2.0):
        journal.append(timed(1, ms))
    assert journal.recall()[config(1)].median_ms == 2.0


def test_a_disturbed_time_is_said_and_not_taken_for_a_good_one(tmp_path):
    busy = replace(timed(1, 9.0), is_disturbed=True)
    assert json.loads(to_line(KEY, busy))["disturbed"] is True
    assert json.loads(to_line(KEY, timed(1)))["disturbed"] is False
    Journal(tmp_path, KEY).append(busy)
    assert Journal(tmp_path, KEY).recall() == {}  # so it is measured again
    for outcome in (timed(1, 2.0), busy):
        Journal(tmp_path, KEY).append(outcome)
    assert Journal(tmp_path, KEY).recall()[config(1)].median_ms == 2.0


def test_disturbed_times_rank_behind_all_others(tmp_path):
    journal = Journal(tmp_path, KEY)
    for number, ms, is_disturbed in ((1, 1.0, True), (2, 9.0, False), (3, 8.0, False)):
        journal.append(replace(timed(number, ms), is_disturbed=is_disturbed))
    journal.append(replace(timed(3, 10.0), is_disturbed=True))
    assert journal.similar() == [config(3), config(2), config(1)]


def test_lines_of_earlier_versions_say_nothing_of_disturbances():
    line = json.loads(to_line(KEY, timed(1)))
    del line["disturbed"]
    record = from_line(json.dumps(line))
    assert record is not None
    assert not record.outcome.is_disturbed


def test_accidents_are_believed_the_second_time(tmp_path):
    journal = Journal(tmp_path, KEY)
    journal.append(failed(1, Verdict.CRASHED))
    assert journal.recall() == {}
    journal.append(failed(1, Verdict.HUNG))
    assert journal.recall()[config(1)].verdict is Verdict.HUNG
    for _ in range(3):
        journal.append(failed(2, Verdict.OUT_OF_MEMORY))
    assert config(2) not in journal.recall()


DAMAGE = {
    "torn": to_line(KEY, timed(1))[:70],
    "binary": "\x00\xff\x13",
    "foreign": '{"hello": "world"}',
    "list": "[1, 2, 3]",
    "number": "17",
    "schema": to_line(KEY, timed(1)).replace('"schema":1', '"schema":99').strip(),
    "verdict": to_line(KEY, timed(1)).replace('"ok"', '"splendid"').strip(),
    "time": to_line(KEY, timed(1)).replace('"median_ms":1.5', '"median_ms":-1').strip(),
    "huge": to_line(KEY, timed(1)).replace('"median_ms":1.5', f'"median_ms":{10**400}').strip(),
    "predicted": to_line(KEY, timed(1))
    .replace('"predicted_ms":', '"predicted_ms":"soon","x":')
    .strip(),
    "config": to_line(KEY, timed(1)).replace('"num_warps":4', '"num_warps":{"a":1}').strip(),
    "self": to_line(KEY, timed(1)).replace('"num_warps":4', '"self":4').strip(),
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_lines_are_skipped_and_counted(tmp_path, name):
    journal = Journal(tmp_path, KEY)
    journal.append(timed(1))
    with journal.path.open("ab") as file:
        file.write(DAMAGE[name].encode("latin-1") + b"\n")
    journal.append(timed(2))
    again = Journal(tmp_path, KEY)
    assert again.similar() == [config(1), config(2)]
    assert again.num_skipped == 1
    assert set(again.recall()) == {config(1), config(2)}


def test_a_torn_last_line_does_not_swallow_the_next(tmp_path):
    journal = Journal(tmp_path, KEY)
    journal.append(timed(1))
    with journal.path.open("ab") as file:
        file.write(b'{"schema":1,"time":"2026')
    journal.append(timed(2))
    assert set(journal.recall()) == {config(1), config(2)}


def test_a_full_disk_costs_one_warning_and_no_measurement(tmp_path, monkeypatch, caplog):
    def full(handle, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    journal = Journal(tmp_path, KEY)
    journal.append(timed(1))
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "write", full)
        for number in (2, 3):
            journal.append(timed(number))
    assert journal.is_broken
    assert len(caplog.records) == 1
    assert "No space left on device" in caplog.text
    assert set(journal.recall()) == {config(1), config(2), config(3)}
    assert set(Journal(tmp_path, KEY).recall()) == {config(1)}


def test_half_a_line_written_counts_as_a_full_disk(tmp_path, monkeypatch):
    write = os.write
    journal = Journal(tmp_path, KEY)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, data: write(handle, data[:20]))
        journal.append(timed(1))
    assert journal.is_broken
    assert set(journal.recall()) == {config(1)}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device")
def test_a_journal_on_a_full_device(tmp_path):
    journal = Journal(tmp_path, KEY)
    journal.path.parent.mkdir(parents=True)
    journal.path.symlink_to("/dev/full")
    journal.append(timed(1))
    assert journal.is_broken
    journal.path.unlink()
    assert set(journal.recall()) == {config(1)}


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    journal = Journal(tmp_path / "file", KEY)
    journal.append(timed(1))
    assert journal.is_broken
    assert set(journal.recall()) == {config(1)}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_no_error(tmp_path):
    tmp_path.chmod(0o500)
    journal = Journal(tmp_path, KEY)
    journal.append(timed(1))
    tmp_path.chmod(0o700)
    assert journal.is_broken
    assert set(journal.recall()) == {config(1)}


def test_a_large_journal_becomes_the_old_one(tmp_path):
    journal = Journal(tmp_path, KEY, max_bytes=1500)
    for number in range(7):
        journal.append(timed(number))
    assert journal.old_path.exists()
    assert journal.path.stat().st_size <= 1500 + 800
    assert journal.old_path.stat().st_size <= 1500 + 800
    # Only what was in an even older file is gone.
    kept = set(journal.recall())
    assert config(6) in kept
    assert 3 <= len(kept) < 7
    assert find_journals(tmp_path, "matmul") == sorted([journal.old_path, journal.path])


def test_similar_configs_come_from_near_shapes_first(tmp_path):
    shapes = {1: "tile_m=64 tile_n=256; x:bf16", 2: "tile_m=1024 tile_n=2048; x:bf16"}
    shapes |= {3: "tile_m=1024 tile_n=1024; x:f32", 4: "rows=5; x:bf16"}
    for number, text in shapes.items():
        far = Journal(tmp_path, other(shapes=text, arguments=text))
        far.append(timed(10 * number, 2.0))
        far.append(timed(10 * number + 1, 1.0))
        far.append(timed(10 * number + 2, 3.0))
    here = Journal(tmp_path, KEY)
    here.append(timed(5, 9.0))
    here.append(failed(6))
    expected = [5, 21, 20, 11, 10, 31, 30, 41, 40]
    assert here.similar() == list(map(config, expected))
    # Its own conditions, and as many others as it is allowed.
    assert here.similar(0) == [config(5)]
    assert here.similar(2) == list(map(config, expected[:5]))
    assert Journal(tmp_path, other(source="edited")).similar() == []


def test_journals_of_names_with_odd_characters(tmp_path):
    assert safe_name("../a b/c<lambda>") == "_a_b_c_lambda_"
    assert safe_name("...") == "kernel"
    journal = Journal(tmp_path, other(kernel="../../evil"))
    journal.append(timed(1))
    assert journal.path.parent == tmp_path / "tuning" / "journal"


def test_values_keep_their_types():
    choice = Config(block_sizes=[16], flags=[True, None, False], text="a\u2028b", share=0.5)  # pyright: ignore[reportCallIssue]
    outcome = timed(1)
    outcome = replace(outcome, candidate=replace(outcome.candidate, config=choice))
    record = from_line(to_line(KEY, outcome))
    assert record is not None
    assert record.outcome.config == choice
    assert record.outcome.config["flags"] == [True, None, False]
