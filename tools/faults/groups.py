"""All groups of faults, in the order they are run."""

from __future__ import annotations

from tools.faults.kills import kill_children, kill_parents
from tools.faults.rows import Group

GROUPS: dict[str, Group] = {
    "parents": kill_parents,
    "children": kill_children,
}
