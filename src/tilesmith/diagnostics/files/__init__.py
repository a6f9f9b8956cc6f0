"""Files of the user that cannot be read."""
