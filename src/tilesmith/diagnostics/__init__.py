"""Source locations, error rendering and the catalogue of user errors. Standard library only."""
