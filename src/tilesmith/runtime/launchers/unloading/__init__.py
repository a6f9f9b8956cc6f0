"""Code on a GPU that nobody can launch any more is taken from it."""
