"""What to write instead of what device code does not have."""
