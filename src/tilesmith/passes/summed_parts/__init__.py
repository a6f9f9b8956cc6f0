"""Products whose sums are shared by several programs."""
