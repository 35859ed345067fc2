"""Writing: rows are prepared, tagged with their file group, assigned, and written as base or log files."""
