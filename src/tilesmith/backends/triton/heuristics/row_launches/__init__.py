"""Products whose rows are reduced by a second launch."""
