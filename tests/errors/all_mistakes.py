"""All mistakes by topic. A new file of mistakes is listed here."""

from __future__ import annotations

from tests.errors import (
    barrier_mistakes,
    combine_mistakes,
    config_mistakes,
    control_flow_mistakes,
    debugging_mistakes,
    definition_mistakes,
    jagged_mistakes,
    loop_mistakes,
    memory_mistakes,
    name_mistakes,
    operation_mistakes,
    rearrangement_mistakes,
    setting_mistakes,
    statement_mistakes,
    torch_function_mistakes,
    value_mistakes,
)
from tests.errors.case import Case

CASES: dict[str, list[Case]] = {
    "definitions": definition_mistakes.CASES,
    "loops": loop_mistakes.CASES,
    "barriers": barrier_mistakes.CASES,
    "jagged_tiles": jagged_mistakes.CASES,
    "statements": statement_mistakes.CASES,
    "names": name_mistakes.CASES,
    "control_flow": control_flow_mistakes.CASES,
    "operations": operation_mistakes.CASES,
    "torch_functions": torch_function_mistakes.CASES,
    "memory": memory_mistakes.CASES,
    "values": value_mistakes.CASES,
    "rearrangements": rearrangement_mistakes.CASES,
    "combinations": combine_mistakes.CASES,
    "configs": config_mistakes.CASES,
    "settings": setting_mistakes.CASES,
    "debugging": debugging_mistakes.CASES,
}
