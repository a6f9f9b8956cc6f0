"""Products that store more than they load."""
