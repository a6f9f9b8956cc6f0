"""Options of a loop that Triton cannot do with what stands in it."""
