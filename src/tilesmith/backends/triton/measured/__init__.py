"""What an H200 was measured to like: tiles, pipelines, turned operands, turns run together."""
