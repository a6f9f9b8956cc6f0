"""The runner as a process: ``python -m tilesmith.tune.runner.main``, started by its parent."""

from __future__ import annotations

from tilesmith.tune.processes.serve import Handler, serve
from tilesmith.tune.runner.state import RunnerState


def main(handler: Handler) -> None:
    """Answer jobs until the parent goes away; ``handler`` may wrap that of a RunnerState."""
    serve(handler)


if __name__ == "__main__":
    main(RunnerState().handle)
