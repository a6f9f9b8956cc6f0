"""Of two launches in a row the second is started while the first still stores, and waits there.

Starting takes a launch longer than most rows take to be reduced: 512 rows of a product of 512x512
8.9 to 9.1 us instead of 9.4, 1024 of 1024x1024 13.4 instead of 13.9 (H200). What is read waits for
the end of the launch before, whose stores are seen then; that is promised by the instruction
itself, wherever the earlier launch says that the next may be started.
"""

from __future__ import annotations

import re

from tilesmith.ir.function import Function
from tilesmith.targets import Target

LEAST_CAPABILITY = 90
OPTION = "launch_pdl"
"""Of a launch that may begin before the end of the one before it."""
WAIT, START = "tl.extra.cuda.gdc_wait()", "tl.extra.cuda.gdc_launch_dependents()"
_STORE = re.compile(r"^ +(?:tl|\w+_desc\w*)\.store\(", re.MULTILINE)


def begins_early(function: Function, target: Target) -> bool:
    """Whether it is launched before the end of what its ``before`` computes."""
    return function.before is not None and _has_instruction(target)


def let_next_begin(body: str, function: Function, target: Target) -> str:
    """The body, where another launch reads what it stores: that one is started before the store."""
    stores = list(_STORE.finditer(body))
    if not function.is_first or len(stores) != 1 or not _has_instruction(target):
        return body
    at = stores[0].start()
    indent = re.match(" +", stores[0].group())
    assert indent is not None
    return f"{body[:at]}{indent.group()}{START}\n{body[at:]}"


def _has_instruction(target: Target) -> bool:
    return target.kind == "cuda" and target.capability >= LEAST_CAPABILITY
