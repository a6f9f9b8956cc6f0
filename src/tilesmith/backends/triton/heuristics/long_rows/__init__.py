"""Long rows that are walked in chunks."""
