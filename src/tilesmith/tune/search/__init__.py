"""Search methods behind one ask/tell interface; none knows a device or a clock."""
