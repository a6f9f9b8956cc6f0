"""Forms of products as steps of the pipeline."""
