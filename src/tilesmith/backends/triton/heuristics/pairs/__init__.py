"""Products of numbers that come in pairs."""
