"""Several products in one launch, of which one has few tiles and long sums."""
