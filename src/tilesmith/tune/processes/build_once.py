"""The module of a process that does one build: where the build server cannot fork."""

from __future__ import annotations

from tilesmith.tune.processes.build_jobs import build_one
from tilesmith.tune.processes.serve import serve

if __name__ == "__main__":
    serve(build_one)
