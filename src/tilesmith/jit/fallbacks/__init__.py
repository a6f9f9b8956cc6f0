"""What runs where a config that nobody asked for does not build."""
