"""The generator behind random numbers, in exact integer ops."""
