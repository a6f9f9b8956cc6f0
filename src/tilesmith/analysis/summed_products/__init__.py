"""Products whose sums may be shared by several programs."""
