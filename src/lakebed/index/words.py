"""Index words of the command line, repeated here so that `lakebed --help` need not load the kinds and Arrow."""

from __future__ import annotations

COMMANDS = ("record", "record_partitioned", "column_stats", "partition_stats", "bloom", "files")
"""Indexes that commands can create."""
TOLD_BY_TABLE = ("record_windowed", "secondary", "expression")
"""Indexes that commands cannot create; asking for one gets an error that says how to create it."""
COMMANDS_TEXT = f"{', '.join(COMMANDS[:-1])} or {COMMANDS[-1]}"
