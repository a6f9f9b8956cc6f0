"""One launcher for each kind of Artifact."""
