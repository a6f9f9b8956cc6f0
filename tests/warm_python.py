"""Processes of their own for tests that need one, without the two seconds that torch takes to load.

``[*warm_python(), "-c", code]`` stands for ``[sys.executable, "-c", code]``, also with ``-m``, a
script and ``-W``. A server that has imported torch, and nothing else, forks for each: environment,
folder, pipes, arguments and exit status are those of the command. Tests of how processes start and
end, and of what is loaded before torch, use a plain ``sys.executable``.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

CLIENT = Path(__file__).with_name("warm_client.py")
MAX_MESSAGE = 1 << 20
MAX_FILES = 256
PR_SET_PDEATHSIG = 1
Request = dict[str, Any]


def end_with_parent(parent: int) -> None:
    """Be killed when the process ends that has forked this one."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it was sooner


@cache
def warm_python() -> tuple[str, ...]:
    """The beginning of a command line; the first call starts the server of this process."""
    folder = tempfile.TemporaryDirectory(prefix="tilesmith-warm-")
    address = str(Path(folder.name) / "socket")
    # Isolated: each command brings its own import path and variables.
    command = [sys.executable, "-I", str(Path(__file__)), address]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdout.readline()

    def end() -> None:
        server.communicate()
        folder.cleanup()

    atexit.register(end)
    return sys.executable, "-I", "-S", str(CLIENT), address


def serve(address: str) -> Request | None:
    """Fork for each request. Gives the request in its fork, None at the end of the server."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ)
    waiting.register(sys.stdin, selectors.EVENT_READ)
    os.write(1, b"ready\n")
    while True:
        for key, _ in waiting.select():
            if key.fileobj is sys.stdin:
                return None  # whoever started this has gone
            if key.fileobj is listener:
                request = _begin(listener, waiting)
                if request is not None:
                    return request
            else:
                _finish(key, waiting)


def _begin(listener: socket.socket, waiting: selectors.BaseSelector) -> Request | None:
    connection, _ = listener.accept()
    text, files, _, _ = socket.recv_fds(connection, MAX_MESSAGE, 3)
    while not text.endswith(b"\n"):
        text += connection.recv(MAX_MESSAGE)
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        # Where the server ends, nobody is left who would wait for what it has forked.
        end_with_parent(server)
        for number, file in enumerate(files):
            os.dup2(file, number)
        # The server's own; Python's objects for them are never asked again.
        os.closerange(3, MAX_FILES)
        return json.loads(text)
    for file in files:
        os.close(file)
    ended = os.pidfd_open(pid)
    both = (pid, ended, connection)
    waiting.register(ended, selectors.EVENT_READ, both)
    waiting.register(connection, selectors.EVENT_READ, both)
    return None


def _finish(key: selectors.SelectorKey, waiting: selectors.BaseSelector) -> None:
    """A process has ended, or the client that stands for it was killed."""
    pid, ended, connection = key.data
    if ended not in waiting.get_map():
        return
    if key.fileobj is connection:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    waiting.unregister(ended)
    waiting.unregister(connection)
    os.close(ended)
    with suppress(OSError):
        connection.sendall(json.dumps(status).encode())
    connection.close()


def become(request: Request) -> None:
    """Be the process of a command line."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    words = list(request["words"])
    while words[0] == "-W":
        warnings.simplefilter(words[1])
        del words[:2]
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    form, *sys.argv = words if words[0] in ("-c", "-m") else ("", *words)
    own = "" if form == "-c" else os.getcwd() if form == "-m" else str(Path(words[0]).parent)
    sys.path[:0] = [own, *paths]
    if form == "-m":
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif form == "-c":
        code, sys.argv[0] = sys.argv[0], "-c"
        sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


def end_as(request: Request) -> int:
    """The exit status of a command, after all it does."""
    try:
        become(request)
    except SystemExit as asked:
        if asked.code is None or isinstance(asked.code, int):
            return asked.code or 0
        sys.stderr.write(f"{asked.code}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main(address: str) -> None:
    """Serve, or be one of the processes asked for."""
    gc.freeze()
    request = serve(address)
    if request is None:
        return
    status = end_as(request)
    for thread in set(threading.enumerate()) - {threading.current_thread()}:
        if not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    # Taking down torch object by object would copy all of its memory.
    os._exit(status)


if __name__ == "__main__":
    import_module("torch")  # the reason for all this
    main(sys.argv[1])
