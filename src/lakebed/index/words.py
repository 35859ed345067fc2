"""Words of commands for kinds of index: `lakebed --help` shows them and does not load the kinds, which load Arrow."""

from __future__ import annotations

COMMANDS = ("record", "record_partitioned", "column_stats", "partition_stats", "bloom", "files")
"""Those that a command can ask for."""
TOLD_BY_TABLE = ("record_windowed", "secondary", "expression")
"""Kinds that there are, too: what else they need, or who builds them, is told when they are asked for."""
COMMANDS_TEXT = f"{', '.join(COMMANDS[:-1])} or {COMMANDS[-1]}"
