"""One rule for each op, in files named like those of the IR; a rule sees its own op only."""
