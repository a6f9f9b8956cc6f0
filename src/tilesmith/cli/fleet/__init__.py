"""``tilesmith tune``, also on many devices."""
