"""Programs that were wrong once compute what they should; files are added and never removed.

The whole corpus takes seconds; a part of it runs without ``--full`` (``SHARES``) once it does not.
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_programs_that_were_wrong_are_right(path: Path) -> None:
    data = read_saved(path)
    if data["mode"] == "interpret":
        worker = Worker("interpret")
        try:
            answer = worker.check({"saved": data}, timeout=600)
        finally:
            worker.stop()
        assert answer["outcome"] in ("same", "refused"), answer
        return
    failure = judge(restored(data), data["index"], data["mode"]).failure
    assert failure is None, f"{failure.way}: {failure.problem}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_text_in_a_file_is_that_of_its_program(path: Path) -> None:
    data = json.loads(path.read_text())
    assert restored(data)[0].source().splitlines() == data["source"]
