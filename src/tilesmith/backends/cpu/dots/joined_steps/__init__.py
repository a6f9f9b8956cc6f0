"""Products that take several steps along k at once: neighbours along k share a lane of 32 bits."""
