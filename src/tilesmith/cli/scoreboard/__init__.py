"""``tilesmith bench --scoreboard``."""
