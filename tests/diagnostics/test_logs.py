"""Logs by topic: each tells something at a first call, and nothing at calls that follow."""

from __future__ import annotations

import logging
import os
import re
import subprocess
from pathlib import Path

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.warm_python import warm_python
from tilesmith.diagnostics.logs import TopicHandler, set_up_logs, topic_log
from tilesmith.setting_rules import LOG_TOPICS

ROOT = Path(__file__).parents[2]
SCRIPT = """
import torch
import tilesmith
import tilesmith.language as hl

@tilesmith.kernel
def add(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out

x = torch.ones(64)
add(x, x)
add(x, x)
"""
CONFIG_LINE = r"\[config\] add: tilesmith.Config\(block_sizes=.*\), the default: nothing was .*"


def add(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


def run(folder: Path, logs: str, before: str = "") -> list[str]:
    """What the script writes to stderr."""
    path = folder / "script.py"
    path.write_text(before + SCRIPT)
    plain = {k: v for k, v in os.environ.items() if not k.startswith("TILESMITH_")}
    paths = {"PYTHONPATH": str(ROOT / "src"), "TILESMITH_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [*warm_python(), str(path)],
        env={**plain, **paths, "TILESMITH_LOGS": logs},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.splitlines()


def test_nothing_is_logged_unless_asked_for(tmp_path):
    assert run(tmp_path, "") == []


def test_every_line_stands_under_its_topic(tmp_path):
    lines = run(tmp_path, "all")
    found = {line[1 : line.index("]")] for line in lines}
    # Nothing is searched here.
    assert found == set(LOG_TOPICS) - {"autotune"}
    assert sum(re.fullmatch(CONFIG_LINE, line) is not None for line in lines) == 1
    assert any(line.endswith(".o is made") for line in lines)


def test_a_program_that_set_up_logging_gets_records_once(tmp_path):
    before = "import logging; logging.basicConfig(format='mine %(name)s %(message)s')\n"
    (line,) = run(tmp_path, "config", before)
    assert line.startswith("mine tilesmith.config add: ")


@pytest.fixture
def all_topics():
    """All topics at their lowest level, and as before after the test."""
    logs = [logging.getLogger("tilesmith"), *map(topic_log, LOG_TOPICS)]
    levels, handlers = [log.level for log in logs], list(logs[0].handlers)
    set_up_logs("+all")
    yield
    for log, level in zip(logs, levels):
        log.setLevel(level)
    logs[0].handlers[:] = handlers


def test_a_call_that_is_known_logs_nothing(all_topics, caplog):
    kernel = helion.kernel(add)
    x = torch.ones(9)
    kernel(x, x)
    assert {record.name for record in caplog.records} >= {"tilesmith.config", "tilesmith.trace"}
    others = [record for record in caplog.records if record.name != "tilesmith.code"]
    assert not [record for record in others if "\n" in record.getMessage()]
    caplog.clear()
    kernel(x, x)
    kernel(torch.zeros(9), x)
    assert caplog.records == []


def test_what_is_made_once_is_there_the_next_time(all_topics, caplog, tmp_path):
    x = torch.ones(9)
    for ending in ("is made", "is there"):
        caplog.clear()
        helion.kernel(add, cache_dir=tmp_path)(x, x)
        texts = [r.getMessage() for r in caplog.records if r.name == "tilesmith.cache"]
        assert [text for text in texts if ".o is " in text][-1].endswith(ending)


def test_more_is_asked_for_by_a_plus(all_topics, caplog):
    x = torch.ones(9)
    helion.kernel(add)(x, x)
    levels = {r.levelno for r in caplog.records if "pass fold_constants" in r.getMessage()}
    stages = {r.levelno for r in caplog.records if "stage STANDARD" in r.getMessage()}
    assert (levels, stages) == ({logging.DEBUG}, {logging.INFO})


def test_why_a_config_was_chosen(all_topics, caplog):
    x = torch.ones(9)
    given = helion.Config(block_sizes=[4])
    helion.kernel(add, config=given)(x, x)
    bound = helion.kernel(add).bind((x, x))
    bound.set_config(helion.Config(block_sizes=[8]))
    texts = [r.getMessage() for r in caplog.records if r.name == "tilesmith.config"]
    assert texts == [
        "add: tilesmith.Config(block_sizes=[4]), given with the decorator",
        "add: tilesmith.Config(block_sizes=[8]), as set_config or a search said",
    ]


def test_switching_on_twice_adds_one_handler_and_keeps_the_lower_level(all_topics):
    set_up_logs("config")
    handlers = logging.getLogger("tilesmith").handlers
    assert sum(isinstance(handler, TopicHandler) for handler in handlers) == 1
    assert topic_log("config").level == logging.DEBUG


def test_the_page_names_every_topic():
    page = (ROOT / "docs" / "logs.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    assert rows == LOG_TOPICS
