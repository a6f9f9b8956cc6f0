"""What neighbouring lanes have in common."""
