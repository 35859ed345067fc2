"""Compaction: log files become base files, or fewer log files."""
