"""lakebed."""
