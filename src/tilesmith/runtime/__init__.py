"""From an Artifact and arguments to a launch.

Knows no compiler. Also the peer's public ``runtime`` names.
"""

from __future__ import annotations

from tilesmith.runtime.generated import (
    default_launcher,
    get_num_sm,
    get_num_xcd,
    set_triton_allocator,
)
from tilesmith.schedule.config import Config
from tilesmith.settings import RefMode, Settings

__all__ = ["Config", "RefMode", "Settings", "default_launcher", "get_num_sm", "get_num_xcd"]
__all__ += ["set_triton_allocator"]
