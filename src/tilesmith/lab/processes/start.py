"""The first code of a child process: makes it safe to lose, then runs its module as ``__main__``.

Started as a script, ``start.py MODULE BIRTH``: before this package, and with it torch, is imported,
the child is already tied to its parent. Needs the standard library only.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import resource
import runpy
import signal
import socket
import sys
import threading
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from time import sleep
from types import ModuleType
from typing import NamedTuple

PACKAGE = "tilesmith"
RUNTIME = "runtime"
PR_SET_PDEATHSIG = 1
ORPHAN_EXIT_CODE = 3
WATCH_INTERVAL_S = 1.0


class StartInfo(NamedTuple):
    """What a parent tells its child on the command line."""

    channel: int
    """Descriptor of the inherited socket."""
    parent: int
    """Process id."""
    has_main_thread_parent: bool
    """Whether the main thread started it. The kernel's notice of a parent's death comes when the
    starting *thread* ends, so it can be used only then."""
    is_bare: bool
    """Whether the package is to be imported without running its ``__init__``."""


def read_start_info() -> StartInfo:
    """The info of this process; ``main`` has left it on the command line."""
    return StartInfo(*json.loads(sys.argv[1]))


def inherited_socket(info: StartInfo) -> socket.socket:
    """The child's end of the socket pair."""
    return socket.socket(fileno=info.channel)


def is_orphan(parent: int) -> bool:
    """Whether the parent has gone."""
    return os.getppid() != parent


def die_with_parent(parent: int) -> bool:
    """Have the kernel kill this process when the parent's thread ends; False where it cannot."""
    if sys.platform != "linux":
        return False
    try:
        is_set = ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False
    if is_orphan(parent):
        os._exit(ORPHAN_EXIT_CODE)
    return is_set


def watch_parent(parent: int) -> None:
    """Look from a thread whether the parent is there, and end this process and its group if not."""

    def watch() -> None:
        while not is_orphan(parent):
            sleep(WATCH_INTERVAL_S)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(ORPHAN_EXIT_CODE)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def make_bare_package() -> None:
    """Make the package importable without what takes seconds to import torch.

    That is its ``__init__``, and that of the folder ``runtime``.
    """
    root = Path(__file__).parents[3]
    package = _make_bare(PACKAGE, root)
    if package is not None:
        setattr(package, RUNTIME, _make_bare(f"{PACKAGE}.{RUNTIME}", root / PACKAGE))


def _make_bare(name: str, folder: Path) -> ModuleType | None:
    spec = PathFinder.find_spec(name, [str(folder)])
    if spec is None:
        return None
    sys.modules[name] = module_from_spec(spec)
    return sys.modules[name]


def _protect(info: StartInfo) -> None:
    # The terminal's Ctrl-C is for the parent, which ends its children itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if info.has_main_thread_parent:
        die_with_parent(info.parent)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    with suppress(OSError, ValueError):
        # A core file of a process with a GPU context takes minutes to write.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        # When memory runs out, rather this process than the user's.
        Path("/proc/self/oom_score_adj").write_text("500")


def main() -> None:
    """Run the module named on the command line."""
    module = sys.argv[1]
    del sys.argv[1]
    _protect(read_start_info())
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    if read_start_info().is_bare:
        make_bare_package()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
