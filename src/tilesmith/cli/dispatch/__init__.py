"""``tilesmith dispatch`` and ``tilesmith record``: configs for many shapes."""
