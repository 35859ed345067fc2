"""Reading: plan a scan, prune it, read and merge file slices, in process or on Spark."""
