"""A product whose rows are reduced, and the reduction, in launches of their own."""
