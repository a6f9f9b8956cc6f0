"""``tilesmith lint``."""
