"""What stands beside the loop of a tile, and is neither a product nor between products."""
