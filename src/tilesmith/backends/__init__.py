"""From a function and its schedule to an Artifact: no device, no launch."""
