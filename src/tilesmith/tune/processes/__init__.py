"""Child processes that are started as modules, asked over pipes, and may die at any time."""
