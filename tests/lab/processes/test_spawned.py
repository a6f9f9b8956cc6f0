"""A log keeps the end of a text of any length, and does without a place to write to."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from typing import NoReturn

import pytest

from tilesmith.lab.processes.spawned import LIMIT_BYTES, TAIL_BYTES, OutputLog


def refuse(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(params=["memory", "file"])
def log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[OutputLog]:
    if request.param == "file":
        monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    log = OutputLog()
    yield log
    log.close()


def test_what_is_written_can_be_read_while_writing_goes_on(log: OutputLog):
    os.write(log.fileno(), b"one\n")
    assert log.tail() == "one\n"
    os.write(log.fileno(), b"two\n")
    assert log.tail() == "one\ntwo\n"


@pytest.mark.parametrize("size", [TAIL_BYTES - 1, TAIL_BYTES, TAIL_BYTES + 1, LIMIT_BYTES + 1])
def test_the_tail_is_the_end(log: OutputLog, size: int):
    text = b"".join(b"%9d\n" % number for number in range(size // 10 + 1))[-size:]
    os.write(log.fileno(), text)
    for _ in range(2):
        assert log.tail().encode() == text[-TAIL_BYTES:]
        log.trim()
    assert (os.fstat(log.fileno()).st_size == 0) == (size > LIMIT_BYTES)
    os.write(log.fileno(), b"more")
    assert log.tail().encode() == (text + b"more")[-TAIL_BYTES:]


def test_text_in_no_encoding_is_shown_all_the_same(log: OutputLog):
    os.write(log.fileno(), b"\xff\xfe ok")
    assert log.tail().endswith(" ok")


def test_without_memory_and_disk_only_the_text_is_lost(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    log = OutputLog()
    os.write(log.fileno(), b"lost")
    log.trim()
    assert log.tail() == ""
    log.close()


def test_a_closed_log_is_empty(log: OutputLog):
    os.write(log.fileno(), b"text")
    log.close()
    log.trim()
    assert log.tail() == ""
