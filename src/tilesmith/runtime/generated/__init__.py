"""What modules that the peer has generated call."""
