"""The Configs of GPU kernels: slots of every key, when they have an effect, what goes together."""
