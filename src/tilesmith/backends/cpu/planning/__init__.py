"""What is done in which order: loop nests, stored tiles, packed operands."""
