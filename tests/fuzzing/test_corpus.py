"""Programs that were wrong once compute what they should; files are added and never removed.

A few of each run always do; all of them with ``--full``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fuzzing.execution import judge
from tests.fuzzing.processes import Worker
from tests.fuzzing.saved_programs import read_saved, restored

CORPUS = Path(__file__).parent / "corpus"
FILES = sorted(CORPUS.glob("*.json"))
ON_HOST = [path for path in FILES if read_saved(path)["mode"] in ("host", "gradient")]
INTERPRETED = [path for path in FILES if read_saved(path)["mode"] == "interpret"]


@pytest.mark.parametrize("path", ON_HOST, ids=lambda path: path.stem)
def test_programs_that_were_wrong_are_right(path: Path) -> None:
    data = read_saved(path)
    failure = judge(restored(data), data["index"], data["mode"]).failure
    assert failure is None, f"{failure.way}: {failure.problem}"


def test_exported_programs_that_were_wrong_are_right() -> None:
    if not INTERPRETED:
        pytest.skip("there are none")
    worker = Worker("interpret")
    try:
        for path in INTERPRETED:
            answer = worker.check({"saved": read_saved(path)}, timeout=300)
            assert answer["outcome"] in ("same", "refused"), f"{path.name}: {answer}"
    finally:
        worker.stop()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_text_in_a_file_is_that_of_its_program(path: Path) -> None:
    data = json.loads(path.read_text())
    assert restored(data)[0].source().splitlines() == data["source"]
