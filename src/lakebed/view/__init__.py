"""File groups and file slices as of a snapshot, and the visible log blocks of a slice."""

from lakebed.view.blocks import load_blocks
from lakebed.view.slices import latest_slices, list_data_files

__all__ = ["latest_slices", "list_data_files", "load_blocks"]
