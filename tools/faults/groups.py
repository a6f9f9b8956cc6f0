"""All groups of faults, in the order they are run."""

from __future__ import annotations

from tools.faults.candidates import misbehave
from tools.faults.clocks import jumps
from tools.faults.crowd import crowd
from tools.faults.disks import trouble
from tools.faults.kills import kill_children, kill_parents
from tools.faults.rows import Group
from tools.faults.stores import damage_files, kill_writers

GROUPS: dict[str, Group] = {
    "files": damage_files,
    "writers": kill_writers,
    "clocks": jumps,
    "crowds": crowd,
    "disks": trouble,
    "candidates": misbehave,
    "parents": kill_parents,
    "children": kill_children,
}
