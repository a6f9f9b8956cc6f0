"""Many shapes, few configs: which config serves which sizes, as a decision that people can read."""
