"""Index words of the command line, repeated here so that `lakebed --help` need not load the kinds and Arrow."""

from __future__ import annotations

COMMANDS = ("record", "record_partitioned", "column_stats", "partition_stats", "bloom", "files")
"""Those that a command can ask for."""
TOLD_BY_TABLE = ("record_windowed", "secondary", "expression")
"""Kinds that there are, too: what else they need, or who builds them, is told when they are asked for."""
COMMANDS_TEXT = f"{', '.join(COMMANDS[:-1])} or {COMMANDS[-1]}"
