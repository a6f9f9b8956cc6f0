"""Forms of a function besides the one that it is written in."""
