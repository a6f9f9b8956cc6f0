"""Which top-level loop of a launch begins first."""
