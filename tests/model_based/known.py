"""Combinations that are left out because of a known bug. Set one to False when it is fixed, then delete it."""

from __future__ import annotations

KNOWN = {
    # With a record index, a key that comes back after a delete goes to a new file group, whose base file has it, while
    # that of the old one has it still, until it is compacted.
    "read_optimized shows keys that came back twice": True,
}
