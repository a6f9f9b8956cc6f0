"""The plan of a kernel as loop IR."""
