"""A bound kernel can be looked at: the explorer stands above and loads when it is asked for."""
