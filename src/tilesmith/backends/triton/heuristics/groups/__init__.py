"""Products of groups of rows, whose tiles are shared out to many programs."""
