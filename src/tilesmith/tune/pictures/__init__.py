"""Pictures of searches."""
