"""Winners and measurements that a team shares, in a folder or bucket that fsspec can reach."""
