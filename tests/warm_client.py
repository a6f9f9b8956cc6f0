"""Stands for a process of ``tests.warm_python``: hands over what it was given, ends as that does.

Started hundreds of times: it imports little.
"""

from __future__ import annotations

import array
import json
import os
import socket
import sys


def main() -> None:
    """``warm_client.py ADDRESS WORDS...``: the words follow ``python`` on a command line."""
    server = socket.socket(socket.AF_UNIX)
    server.connect(sys.argv[1])
    request = {"words": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
    files = array.array("i", [0, 1, 2])
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)]
    text = (json.dumps(request) + "\n").encode()
    server.sendall(text[server.sendmsg([text], rights) :])
    status = json.loads(server.recv(64) or b"1")
    if status < 0:
        os.kill(os.getpid(), -status)
    # Pipes are the other process's to flush.
    os._exit(status)


main()
