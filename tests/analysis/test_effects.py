"""Which tensors a function reads and writes."""

from __future__ import annotations

from tests.passes.program_text import make_program
from tilesmith.analysis.effects import groups_written_in, tensors_read, tensors_written

BODY = """
    %v = load(%x, none, [%i]) : f32[t]
    store(%y, %v, none, [%i])
    loop([%zero], [%hundred], [], []) {blocks=["u"]} (%k: i32[]) {
      %old = atomic(%w, %f, none, [%k, %zero]) {kind="add"} : f32[]
    }
    program_barrier()
"""


def test_tensors_by_effect() -> None:
    program = make_program(BODY)
    assert tensors_read(program) == ("x", "w")
    assert tensors_written(program) == ("y", "w")


def test_groups_written_are_those_of_the_tensors() -> None:
    program = make_program(BODY.replace("program_barrier()", ""))
    assert groups_written_in(program.body) == {1, 2}
    assert groups_written_in(make_program(BODY).body) is None
