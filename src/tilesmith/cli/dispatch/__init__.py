"""``tilesmith dispatch``: configs for many shapes."""
