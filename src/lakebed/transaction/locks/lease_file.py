"""The lock file of Apache Hudi's storage-based lock provider: one JSON object, replaced by compare-and-swap."""

from __future__ import annotations

import json
from dataclasses import dataclass

from lakebed.format.guard import decoding
from lakebed.format.json_text import decode_json_object

LOCK_FILE = ".hoodie/.locks/table_lock.json"
_LONG = 2**63


@dataclass(frozen=True, slots=True)
class Lease:
    """Who has the lock, and until when by the owner's clock. A lock that was given up is `expired`."""

    owner: str
    valid_until_ms: int
    expired: bool = False


def encode_lease(lease: Lease) -> bytes:
    """The lock file's bytes, as Apache Hudi writes them."""
    fields = {"expired": lease.expired, "validUntil": lease.valid_until_ms, "owner": lease.owner}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def decode_lease(data: bytes, *, path: str = LOCK_FILE) -> Lease:
    """Inverse of `encode_lease`; like Apache Hudi, it ignores other fields and refuses a file without these three."""
    fields = decode_json_object(data, path=path, what="the lock")
    with decoding(path, "the lock"):
        expired, until, owner = fields["expired"], fields["validUntil"], fields["owner"]
        if not (type(expired) is bool and type(until) is int and type(owner) is str and -_LONG <= until < _LONG):
            raise TypeError(f"expired={expired!r}, validUntil={until!r}, owner={owner!r}")
    return Lease(owner, until, expired)
