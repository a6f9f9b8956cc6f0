"""A runner that runs nothing: it answers every job at once, and needs no torch.

It stands for ``tilesmith.tune.runner.main`` where processes are killed by the dozen: the protocol,
the processes and the files are real, only verdicts and times are made up.
"""

from __future__ import annotations

import os
from typing import Any

from tilesmith.lab.processes import serve as serving
from tilesmith.store.outcome import Verdict
from tilesmith.tune.jobs import CheckReply, PrepareReply, TimeReply
from tools.faults.points import Points, frame_name, plan_of

MODULE = "tools.faults.light_runner"


def answer(payload: bytes) -> Any:
    """The reply to a job; most are not even unpickled, which would need torch."""
    name = frame_name(payload)
    if name == "PrepareJob":
        return PrepareReply("nobody: nothing is run")
    if name == "CheckJob":
        return CheckReply(Verdict.OK, "", 1.0)
    if name == "TimeJob":
        job: Any = serving.decode(payload)
        return TimeReply(tuple((1.0,) * job.repeats for _ in job.keys))
    return None


def main() -> None:
    """Serve the parent that started this process."""
    plan = plan_of(os.environ)
    if plan is not None:
        points = Points(plan, "runner")
        points.watch()
        points.reach("start")
    serving.answer = lambda handler, payload: serving.encode(handler(payload))
    serving.serve(answer)


if __name__ == "__main__":
    main()
