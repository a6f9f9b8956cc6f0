"""The shared cache under the local one: a kernel's entries are pulled when they are first needed.

Once in a process, for each kernel. A place that does not answer costs one warning.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path

from tilesmith.team.exchange import pull
from tilesmith.team.shared_folder import SharedFolder, TeamCacheError

LOG = logging.getLogger("tilesmith.autotune")


@lru_cache(maxsize=4096)
def refresh(url: str, folder: Path, kernel: str) -> bool:
    """Have what the team knows of a kernel in the local folder; whether anything is new."""
    try:
        summary = pull(folder, SharedFolder(url), kernel)
    except (TeamCacheError, OSError) as error:
        _warn_once(url, str(error))
        return False
    for line in (*summary.refused, *summary.notes):
        LOG.warning("the team's cache %s: %s", url, line)
    return bool(summary.winners or summary.measurements)


@lru_cache(maxsize=64)
def _warn_once(url: str, problem: str) -> None:
    LOG.warning("the team's cache %s is left out: %s", url, problem)
