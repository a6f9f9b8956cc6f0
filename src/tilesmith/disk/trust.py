"""Who may have written a file. Code is run only from files that nobody else could change.

The rules are those of ssh for its keys: whoever can write the folder, or a folder above it, can
put another file there.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from tilesmith.diagnostics.logs import topic_log

CACHE = topic_log("cache")
FOLDER_MODE = 0o700
FILE_MODE = 0o600
_SUPERUSER = 0
_ADVICE = (
    "compiled code is kept in %s: %s, so that others could change what is run from %s. "
    "Mend the permissions (chmod go-w, chown) or name another folder in TILESMITH_CACHE_DIR"
)


def code_folder(cache_dir: Path) -> Path:
    """The cache folder, or one of this user alone where others can write the former.

    >>> code_folder(Path.home() / ".cache" / "tilesmith").is_dir()
    True
    """
    try:
        cache_dir.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        reason = reason_against(cache_dir)
    except OSError:  # it cannot be written at all, which callers expect
        return cache_dir
    if not reason:
        return cache_dir
    instead = _private_folder(Path(tempfile.gettempdir()), os.geteuid())
    _warn_once(cache_dir, reason, instead)
    return instead


def reason_against(path: Path) -> str:
    """Why others could have written what lies here; empty where they could not."""
    whole = path.resolve()
    for place in (whole, *whole.parents):
        found = place.stat()
        # In a folder like /tmp, which has the sticky bit, others cannot replace what is not theirs.
        is_shared = place != whole and bool(found.st_mode & stat.S_ISVTX)
        reason = _reason_of(found, is_shared=is_shared)
        if reason:
            return f"{place} {reason}"
    return ""


def is_ours(handle: int) -> bool:
    """Whether nobody else could have written this open file."""
    return not _reason_of(os.fstat(handle), is_shared=False)


def _reason_of(found: os.stat_result, *, is_shared: bool) -> str:
    user = os.geteuid()
    if found.st_uid not in (user, _SUPERUSER):
        return f"belongs to {_name_of(lambda: pwd.getpwuid(found.st_uid).pw_name, found.st_uid)}"
    if found.st_mode & stat.S_IWOTH and not is_shared:
        return "can be written by everybody"
    is_open = found.st_mode & stat.S_IWGRP and not is_shared
    if is_open and not _is_alone(found.st_gid, user):
        group = _name_of(lambda: grp.getgrgid(found.st_gid).gr_name, found.st_gid)
        return f"can be written by the group {group}"
    return ""


def _is_alone(group: int, user: int) -> bool:
    """Whether it is the group that many systems give each user for himself."""
    try:
        owner, members = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    is_own = owner.pw_gid == group and members.gr_name == owner.pw_name
    return is_own and set(members.gr_mem) <= {owner.pw_name}


def _name_of(find: Callable[[], str], number: int) -> str:
    try:
        return find()
    except KeyError:
        return f"number {number}"


@cache
def _warn_once(folder: Path, reason: str, instead: Path) -> None:
    CACHE.warning(_ADVICE, instead, reason, folder)


@cache
def _private_folder(parent: Path, user: int) -> Path:
    """The same one for all processes of a user; a new one if others had that name before."""
    folder = parent / f"tilesmith-{user}"
    with suppress(OSError):
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        if not folder.is_symlink() and not reason_against(folder):
            return folder
    return Path(tempfile.mkdtemp(prefix="tilesmith-code-", dir=parent))
