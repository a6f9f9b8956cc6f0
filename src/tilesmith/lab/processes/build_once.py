"""The module of a process that does one build: where the build server cannot fork."""

from __future__ import annotations

from tilesmith.lab.processes.build_server import build_one
from tilesmith.lab.processes.serve import serve

if __name__ == "__main__":
    serve(build_one)
