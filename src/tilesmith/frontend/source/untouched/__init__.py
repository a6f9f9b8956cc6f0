"""What host code leaves as it is."""
