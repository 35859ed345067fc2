"""The table handle: configuration, timeline, files and metadata table of one table, loaded together."""

from lakebed.table.handle import TableHandle, open_handle
from lakebed.table.state import TableState

__all__ = ["TableHandle", "TableState", "open_handle"]
