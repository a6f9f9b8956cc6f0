"""What a program does and needs, as far as all backends agree: work, tile sizes, predictions."""
