"""``tilesmith export``."""
