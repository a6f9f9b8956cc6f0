"""The artifact is the IR text itself; the reference launcher interprets it."""
