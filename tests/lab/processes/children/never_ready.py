"""A child that does not come up."""

from __future__ import annotations

import time

time.sleep(60)
