"""From a traced function to an Artifact: the one pipeline, and what is memoised for one key."""
