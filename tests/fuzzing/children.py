"""Forked processes that tell one thing after the other, and end no later than who forked them."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from typing import Any

from tests.warm_python import end_with_parent

Answer = dict[str, Any]
Say = Callable[[Answer], None]


def in_child(work: Callable[[Say], None], hear: Say = lambda answer: None) -> tuple[Answer, int]:
    """The last thing a forked process says, and how it ended; ``hear`` gets all it says."""
    reader, writer = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if not child:
        try:
            end_with_parent(parent)
            os.close(reader)
            with os.fdopen(writer, "w") as answers:
                work(lambda answer: print(json.dumps(answer), file=answers, flush=True))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)  # what the parent has left to do is not to be done twice
    os.close(writer)
    last: Answer = {}
    with os.fdopen(reader) as answers:
        for line in answers:
            if line.endswith("}\n"):  # the last one may have been cut off
                last = json.loads(line)
                hear(last)
    _, status = os.waitpid(child, 0)
    return last, status
