"""The whole way from a traced function to an Artifact, as a few calls."""
