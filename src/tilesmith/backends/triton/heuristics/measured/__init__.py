"""What an H200 was measured to like: tiles, pipelines, turns that run together."""
