"""Several launches for one call."""
