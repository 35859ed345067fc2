"""Storage: local disks, memory and object stores behind one contract. Nothing else touches files of a table.

storage = open_storage("s3://bucket/orders", {"region": "eu-central-1"})
storage.get(".hoodie/hoodie.properties")
"""

from __future__ import annotations

from lakebed.storage.opening import open_storage
from lakebed.storage.port import Listed, Outcome, RequestCounts, Requests, Storage, Ticket

__all__ = ["Listed", "Outcome", "RequestCounts", "Requests", "Storage", "Ticket", "open_storage"]
