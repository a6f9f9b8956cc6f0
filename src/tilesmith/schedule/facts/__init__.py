"""What is known of a function: loops, extents, products, reductions, accesses, amounts of work."""
