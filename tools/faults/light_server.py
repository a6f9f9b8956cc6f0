"""The build server with fault points, in itself and in the builds that it forks."""

from __future__ import annotations

import os

from tilesmith.lab.processes.build_server import main as serve_builds
from tools.faults.points import Points, plan_of

MODULE = "tools.faults.light_server"


def main() -> None:
    """Serve the parent that started this process."""
    plan = plan_of(os.environ)
    if plan is not None:
        points = Points(plan, "server")
        points.watch()
        points.reach("start")
        os.register_at_fork(after_in_child=points.become_build)
    serve_builds()


if __name__ == "__main__":
    main()
