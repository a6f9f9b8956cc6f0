"""What a Config may say about a function on a target: keys, slots, ranges, sizes of tiles."""
