"""Upkeep of the metadata table by itself: compaction, log compaction, cleaning, archiving."""
