"""An open table: configuration, timeline, files and metadata table, loaded together."""

from lakebed.table.handle import TableHandle, open_handle
from lakebed.table.state import TableState

__all__ = ["TableHandle", "TableState", "open_handle"]
