"""From an Artifact and arguments to a launch.

Knows no compiler. Also the peer's public ``runtime`` names.
"""

from __future__ import annotations

from tilesmith.runtime.device import get_num_sm
from tilesmith.schedule.config import Config
from tilesmith.settings import RefMode, Settings

__all__ = ["Config", "RefMode", "Settings", "get_num_sm"]
