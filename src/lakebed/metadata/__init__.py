"""The metadata table (MDT): a merge-on-read table of HFiles with the files, statistics and keys of its data table."""

from lakebed.metadata.table import MetadataTable, Unusable, find_metadata_table

__all__ = ["MetadataTable", "Unusable", "find_metadata_table"]
