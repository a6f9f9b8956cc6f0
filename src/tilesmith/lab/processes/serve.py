"""The child's side: answers jobs one after the other until its parent goes away.

An exception becomes an ``ErrorReply``; what ends the process (SystemExit, abort, a signal) is seen
by the parent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from tilesmith.lab.processes.channel import (
    Channel,
    ChannelClosed,
    NotAFrame,
    Ready,
    decode,
    describe_error,
    encode,
)
from tilesmith.lab.processes.start import (
    die_with_parent,
    inherited_socket,
    read_start_info,
    watch_parent,
)

Handler = Callable[[Any], Any]


def serve(handler: Handler) -> None:
    """Answer every job with what ``handler`` makes of it. Does not return: it ends the process.

    Call it at the end of a module that a ``ChildProcess`` was given, once all it needs is imported.
    """
    info = read_start_info()
    if not (info.has_main_thread_parent and die_with_parent(info.parent)):
        watch_parent(info.parent)
    channel = Channel(inherited_socket(info))
    with suppress(ChannelClosed, NotAFrame):
        channel.send(encode(Ready(monotonic())))
        while True:
            channel.send(answer(handler, channel.receive()))
    leave(0)


def answer(handler: Handler, payload: bytes) -> bytes:
    """The payload of the reply to a job: the handler's, or an ErrorReply."""
    try:
        return encode(handler(decode(payload)))
    except Exception as error:
        return encode(describe_error(error))


def leave(exit_code: int) -> None:
    """End the process without what the interpreter and its libraries do at exit, which may hang."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(exit_code)
