"""Products whose tiles two programs compute, each with half of the rows."""
