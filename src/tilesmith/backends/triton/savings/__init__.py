"""Work that is left out, or done at a better time, where results are the same or round to it."""
