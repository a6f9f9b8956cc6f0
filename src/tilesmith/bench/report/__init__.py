"""The page about a finished benchmark, and its pictures."""
