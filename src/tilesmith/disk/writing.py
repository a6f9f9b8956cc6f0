"""Files that readers see as they were or as they are now, whole."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_hex

FOR_OTHERS = 0o666
"""Mode of files that others may read, as far as the user's umask lets them."""


def replace_file(
    path: Path, content: bytes, mode: int = FOR_OTHERS, *, is_alone: bool = False
) -> None:
    """Write a file that is complete as soon as it has its name.

    Whoever ``is_alone``, by a lock, also removes what writers left that were killed.
    """
    folder_mode = mode | (mode & 0o444) >> 2  # who may read it may enter
    path.parent.mkdir(mode=folder_mode, parents=True, exist_ok=True)
    head = f".{path.name[:80]}."
    for left in path.parent.glob(f"{head}*-*") if is_alone else ():
        left.unlink(missing_ok=True)
    scratch = path.with_name(f"{head}{os.getpid()}-{token_hex(4)}")
    try:
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
