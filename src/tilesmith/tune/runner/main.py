"""The runner as a process: ``python -m tilesmith.tune.runner.main``, started by its parent.

Importing torch is most of its start, so the module imports little itself.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from tilesmith.lab.processes.serve import Handler, serve


def main(handler: Handler) -> None:
    """Answer jobs until the parent goes away; ``handler`` may wrap that of a RunnerState."""
    gc.enable()
    serve(handler)


def prepare_imports() -> None:
    """Before torch is imported: start what can be done meanwhile."""
    gc.disable()  # of what is imported nothing is garbage, and looking for it takes a tenth
    for device in sys.argv[2:]:
        import_module("tilesmith.tune.runner.warm_up").start_warm_up(device)


if __name__ == "__main__":
    prepare_imports()
    main(import_module("tilesmith.tune.runner.state").RunnerState().handle)
