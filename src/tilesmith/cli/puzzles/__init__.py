"""``tilesmith puzzles``."""
